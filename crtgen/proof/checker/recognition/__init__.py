"""Recognises stored words as outputs of layers.

::

    recognise  the way of each word: sums, pairs, sets; then the layers that have a module of their own
    joint      functions of two operands of int16
    softmax    maximum, powers, sum, reciprocal
    lstm       states and gates
    error      bounds of float32
"""
