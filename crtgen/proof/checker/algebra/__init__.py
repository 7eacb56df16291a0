"""Words of 32 bits as expressions of symbols: how they are made, what they mean, and when two are equal.

::

    value      a word: a number, a sum of symbols, or an operation
    words      makes operations, in forms that keep what recognition needs
    meaning    what each operation is, on numbers and on arrays of numbers
    expression goes through the operations of a word
    greatest   maxima and minima, as sets
    long_sums  64 bits in two words
    tried      all values, where they are few
    monotone   functions that never fall: the ends of their steps are enough
    real       float32, as the bits of a word
    spans      bounds of float32
"""
