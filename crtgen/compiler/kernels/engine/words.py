"""Words of constants and rows of weights, processed in slices to save memory."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Value
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = ["NO_WORDS", "Words", "bits_of", "by_output", "some_at_a_time", "words"]

_AT_A_TIME = 1 << 16  # numbers

Words = npt.NDArray[np.uint32]

NO_WORDS = np.zeros(0, np.uint32)


def words(values: Int64) -> Words:
    return (values & 0xFFFFFFFF).astype(np.uint32)


def bits_of(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def by_output(w: Value) -> Int8:
    """Return the weights as ``[O, K]`` without copying them; elements are int8 or int4."""
    return w.array().reshape(w.shape[0], -1).astype(np.int8, casting="safe", copy=False)


def some_at_a_time(rows: int, numbers: int) -> Iterator[slice]:
    """Yield slices that together cover ``rows`` rows of ``numbers`` values each."""
    step = max(_AT_A_TIME // max(numbers, 1), 1)
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))
