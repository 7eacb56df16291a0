/* SPDX-License-Identifier: Apache-2.0 */
/* Return values of the runtime's functions: 0 or more is success, a negative value is one of these errors. */
#ifndef CRT_ERROR_H
#define CRT_ERROR_H

enum crt_error {
    CRT_OK = 0,
    CRT_ERR_ARGUMENT = -1, /* an argument is missing, of the wrong type or out of range */
    CRT_ERR_NAME = -2,     /* nothing has that name or index */
    CRT_ERR_ADDRESS = -3,  /* memory that was neither allocated nor published */
    CRT_ERR_MEMORY = -4,   /* the pool is full */
    CRT_ERR_FORMAT = -5,   /* bytes that violate the format */
    CRT_ERR_STATE = -6,    /* not now */
    CRT_ERR_CALL = -7,     /* a function that was called failed */
};

#endif
