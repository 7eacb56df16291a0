"""Comparisons of int8 as comparisons of stored values."""

import numpy as np
import pytest

from crtgen.compiler.kernels.dsp.compare import form_of

X = np.arange(-128, 128)


@pytest.mark.parametrize(
    ("results", "form"),
    [
        (X >= -128, (">=", -128)),
        (X < -128, ("<", -128)),
        (X >= 5, (">=", 5)),
        (X <= 5, ("<", 6)),
        (X > 125, (">=", 126)),
        (X == -128, ("==", -128)),
        (X == 127, ("==", 127)),
        (X != 3, ("!=", 3)),
        ((X > 2) & (X < 9), None),
    ],
)
def test_form(results: np.ndarray[tuple[int], np.dtype[np.bool_]], form: tuple[str, int] | None) -> None:
    assert form_of(results) == form
