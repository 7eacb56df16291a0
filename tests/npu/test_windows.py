"""Sums of products that the NPU's accumulators do not hold."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crtgen.npu.windows import _check_width


@pytest.mark.parametrize(("form", "bits"), [(0, 32), (1, 40)])
def test_sums_of_either_sign_have_to_fit(form: int, bits: int) -> None:
    state: Any = SimpleNamespace(get=lambda name: form)
    most = (1 << (bits - 1)) - 1
    _check_width(state, np.array([most, -most], np.int64))
    for beyond in (most + 1, -most - 1):
        with pytest.raises(ValueError, match=f"more than {bits} bits"):
            _check_width(state, np.array([beyond, 0], np.int64))


def test_a_format_of_numbers_that_are_no_integers() -> None:
    state: Any = SimpleNamespace(get=lambda name: 2)
    with pytest.raises(ValueError, match="ACC_FORMAT is 2"):
        _check_width(state, np.array([0], np.int64))
