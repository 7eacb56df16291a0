/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two cores that compute the halves of a layer. Models generated with `--cores 2` call crt_both; the program calls
 * crt_worker on its second core, and nothing else there. Without a worker, one core computes both halves.
 */
#ifndef CRT_CORES_H
#define CRT_CORES_H

/* Compute both halves at the same time; returns when both are done. */
void crt_both(void (*first)(const void *call), void (*second)(const void *call), const void *call);

/*
 * Call this on the second core: it waits for halves, computes them, and never returns. Both cores must see the same
 * memory.
 */
void crt_worker(void);

/* 1 once the second core is in crt_worker, otherwise 0. */
int crt_second_waits(void);

#endif
