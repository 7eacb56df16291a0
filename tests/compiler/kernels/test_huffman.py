"""Codes of bytes: what is written is read again, in as few bytes as may be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtgen.compiler.kernels.engine.huffman import HuffmanCode, shortest


@given(st.lists(st.integers(0, 255), min_size=1, max_size=300))
def test_what_is_written_is_read_again(numbers: list[int]) -> None:
    array = np.array(numbers, np.uint8)
    code = shortest(array)
    np.testing.assert_array_equal(code.read(code.written(array), len(array)), array)


@pytest.mark.parametrize("values", [1, 2, 3, 4, 16, 100, 256])
def test_values_that_are_as_often_take_as_many_bits(values: int) -> None:
    """So many of 2,560 numbers; the table is a part of it."""
    array = np.arange(values).repeat(2560 // values).astype(np.uint8)
    np.random.default_rng(1).shuffle(array)
    bits = 16 * (len(shortest(array).written(array)) - 2) / len(array)
    assert bits <= max(1, np.ceil(np.log2(values))) + 0.01 if values < 100 else bits < 9.1


def test_rare_bytes_have_one_code_in_common() -> None:
    """Of 50 that are there once each, a code of their own would be longer than the byte."""
    array = np.append(np.zeros(3000), np.arange(1, 51)).astype(np.uint8)
    code = shortest(array)
    assert sum(length > 0 for length in code.lengths[:256]) == 1
    assert code.lengths[256] == 1
    assert code.table.tolist() == [1 << 8, (1 << 8) + (1 << 15)]
    np.testing.assert_array_equal(code.read(code.written(array), len(array)), array)


def test_codes_are_canonical_and_no_longer_than_they_have_to_be() -> None:
    array = np.repeat([7, 3, 200, 9], [800, 400, 200, 200]).astype(np.uint8)
    code = shortest(array)
    lengths = {symbol: length for symbol, length in enumerate(code.lengths) if length}
    assert lengths == {7: 1, 3: 2, 9: 3, 200: 3}
    assert code.table.tolist() == [256 + 7] * 4 + [512 + 3] * 2 + [768 + 9, 768 + 200]
    assert code.written(np.array([3, 200, 7, 9], np.uint8)).tolist() == [0b1011101100000000, 0, 0]


def test_its_size_is_known_before_it_is_written() -> None:
    array = np.clip(np.random.default_rng(2).normal(0, 9, 5000), -128, 127).astype(np.int8).view(np.uint8)
    code, counts = shortest(array), np.bincount(array, minlength=256)
    assert code.nbytes(counts) == code.written(array).nbytes + code.table.nbytes
    entropy = -sum(n * np.log2(n / 5000) for n in counts.tolist() if n) / 8
    assert entropy < code.written(array).nbytes < 1.04 * entropy


def test_a_table_has_an_entry_for_whatever_follows() -> None:
    code = HuffmanCode((*[0] * 5, 1, *[0] * 251))
    assert code.table.tolist() == [256 + 5, 256]
