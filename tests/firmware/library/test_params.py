"""NDArrays and parameter files: the bytes of the format, round trips, damage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crtgen.base.errors import CorruptModelError, ModelError, UnsupportedError
from crtgen.firmware.library.datatype import DLDataType
from crtgen.firmware.library.params import NDArray, read_params, write_params
from crtgen.network.ir import Array

# One parameter p0, float32 of shape 2x3 with 0..5, byte by byte as the format says.
FILE = bytes.fromhex(
    "b79c04054f8de5f7 0000000000000000 0100000000000000 0200000000000000 7030"
    "0100000000000000 3fa1b496f0405edd 0000000000000000 01000000 00000000 02000000 02200100"
    "0200000000000000 0300000000000000 1800000000000000"
    "00000000 0000803f 00000040 00004040 00008040 0000a040"
)
DTYPES = ("int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", "bool")


def test_reads_the_format() -> None:
    params = read_params(FILE)
    assert list(params) == ["p0"]
    value = params["p0"]
    assert value.device == (1, 0)
    assert value.array.dtype == np.float32
    assert value.array.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_writes_the_format() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert write_params({"p0": NDArray(array)}) == FILE


def test_no_parameters() -> None:
    empty = bytes.fromhex("b79c04054f8de5f7") + bytes(24)
    assert read_params(empty) == {}
    assert write_params({}) == empty


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.sampled_from(DTYPES).flatmap(
            lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, max_dims=4, max_side=3))
        ),
        max_size=3,
    )
)
def test_round_trip(arrays: dict[str, Array]) -> None:
    data = write_params({name: NDArray(array, (2, 1)) for name, array in arrays.items()})
    back = read_params(data)
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].device == (2, 1)
        assert back[name].array.dtype == array.dtype
        assert back[name].array.shape == array.shape
        assert back[name].array.tobytes() == array.tobytes()


@pytest.mark.parametrize("size", range(len(FILE)))
def test_truncated_anywhere(size: int) -> None:
    with pytest.raises(CorruptModelError):
        read_params(FILE[:size])


@given(st.integers(0, len(FILE) - 1), st.integers(0, 255))
def test_a_damaged_byte_is_an_error_or_another_file(at: int, byte: int) -> None:
    data = FILE[:at] + bytes([byte]) + FILE[at + 1 :]
    try:
        back = read_params(data)
    except ModelError:
        return
    # Reserved words are not kept, everything else is.
    assert len(write_params(back)) == len(data)


def test_bytes_after_the_end() -> None:
    with pytest.raises(CorruptModelError, match="1 bytes follow"):
        read_params(FILE + b"\0")


def test_two_parameters_of_one_name() -> None:
    one = write_params({"a": NDArray(np.zeros(1, np.int8)), "b": NDArray(np.zeros(1, np.int8))})
    with pytest.raises(CorruptModelError, match="same name"):
        read_params(one.replace(b"b", b"a", 1))


@pytest.mark.parametrize(
    ("text", "code", "bits", "lanes", "size"),
    [
        ("int8", 0, 8, 1, 1),
        ("float32", 2, 32, 1, 4),
        ("bool", 1, 1, 1, 1),
        ("int8x4", 0, 8, 4, 4),
        ("uint4", 1, 4, 1, 1),
    ],
)
def test_element_types(text: str, code: int, bits: int, lanes: int, size: int) -> None:
    dtype = DLDataType.parse(text)
    assert (dtype.code, dtype.bits, dtype.lanes, dtype.itemsize) == (code, bits, lanes, size)
    assert str(dtype) == text


@pytest.mark.parametrize("text", ["", "int", "int0", "float32x", "int8x0", "complex64", "int999", "Int8"])
def test_no_element_types(text: str) -> None:
    with pytest.raises(CorruptModelError):
        DLDataType.parse(text)


@pytest.mark.parametrize("text", ["int4", "bfloat16", "float32x4", "uint128"])
def test_types_that_numpy_does_not_have(text: str) -> None:
    with pytest.raises(UnsupportedError, match=text):
        _ = DLDataType.parse(text).numpy
