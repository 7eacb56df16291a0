"""Inputs and expected outputs from files, and the comparison."""

from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from crtgen.base.errors import UsageError
from crtgen.compiler.codegen.module import Interface
from crtgen.lab.measure.cases import (
    ReferenceRun,
    compare,
    largest_outputs,
    random_inputs,
    read_cases,
    read_inputs,
    write_outputs,
)
from crtgen.network.ir import DType, Quant

A = Interface("serving/a:0", "serving_a_0", (2, 2), DType.INT8, None, 4)
B = Interface("b", "b", (3,), DType.FLOAT32, None, 12)
ONES, REALS = np.ones((2, 2), np.int8), np.array([1.0, 2.0, 100.0], np.float32)


@pytest.mark.parametrize(
    "keys", [("serving_a_0", "b"), ("input0", "input1"), ("case0_input0", "case0_input1")]
)
def test_inputs_by_name_by_number_or_of_the_first_case(tmp_path: Path, keys: tuple[str, str]) -> None:
    np.savez(tmp_path / "x.npz", **{keys[0]: ONES, keys[1]: REALS})  # type: ignore[arg-type]
    a, b = read_inputs(tmp_path / "x.npz", (A, B)).runs[0]
    np.testing.assert_array_equal(a, ONES)
    np.testing.assert_array_equal(b, REALS)


def test_which_of_several_cases_is_taken_is_said(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", case0_input0=ONES, case1_input0=2 * ONES, case1_output0=ONES)
    given = read_inputs(tmp_path / "x.npz", (A,))
    assert given.source == f"{tmp_path / 'x.npz'}, case0 of 2"
    assert given.runs[0][0].tolist() == ONES.tolist()


def test_real_values_are_quantised_when_that_is_asked_for(tmp_path: Path) -> None:
    """As the operator QUANTIZE does it: halves away from zero, saturated."""
    quantised = replace(A, quant=Quant((0.5,), (3,)))
    np.save(tmp_path / "x.npy", np.array([[0.25, -0.25], [1e9, -1.0]], np.float32))
    given = read_inputs(tmp_path / "x.npy", (quantised,), quantize=True)
    assert given.runs[0][0].tolist() == [[4, 2], [127, 1]]
    assert given.runs[0][0].dtype == np.int8
    with pytest.raises(UsageError, match="type float32, but serving/a:0 has int8") as caught:
        read_inputs(tmp_path / "x.npy", (quantised,))
    assert "--quantize-input" in caught.value.hint
    np.save(tmp_path / "x.npy", np.full((2, 2), np.nan, np.float32))
    with pytest.raises(UsageError, match="4 of 4 values are NaN"):
        read_inputs(tmp_path / "x.npy", (quantised,), quantize=True)


def test_arrays_of_float16_stand_for_float32(tmp_path: Path) -> None:
    """Expected outputs count with their own rounding, and no more."""
    exact = np.array([1.0004, -3.3333, 60000.0], np.float32)
    half = exact.astype(np.float16)
    np.savez(tmp_path / "x.npz", case0_input0=half, case0_output0=half)
    (case,) = read_cases(tmp_path / "x.npz", (B,), (B,))
    assert case.inputs[0].dtype == np.float32
    assert compare((B,), case.outputs, (exact,), (1.0,)) is None
    wrong = exact * np.float32(1.0015)
    assert compare((B,), case.outputs, (wrong,), (1.0,)) is not None


def test_a_single_array_needs_no_name(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ONES)
    np.testing.assert_array_equal(read_inputs(tmp_path / "x.npy", (A,)).runs[0][0], ONES)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"input0": ONES}, "no array for input 1"),
        ({"input0": ONES.reshape(4), "input1": REALS}, "shape 4, but serving/a:0 has 2x2"),
        ({"input0": ONES.astype(np.uint8), "input1": REALS}, "type uint8, but serving/a:0 has int8"),
    ],
)
def test_wrong_inputs_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=message):
        read_inputs(tmp_path / "x.npz", (A, B))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", b"\x93NUMPY\x01"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UsageError, match="the arrays cannot be read"):
        read_inputs(tmp_path / "x.npz", (A,))


def test_an_archive_with_a_damaged_or_a_pickled_array_is_refused(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", a=ONES)
    whole = (tmp_path / "x.npz").read_bytes()
    for position in range(30, len(whole) - 80, 7):
        (tmp_path / "x.npz").write_bytes(whole[:position] + b"\xff\xff\xff" + whole[position + 3 :])
        with pytest.raises(UsageError, match=r"the arrays cannot be read|no array for input"):
            read_inputs(tmp_path / "x.npz", (A, A))
    np.savez(tmp_path / "x.npz", a=np.array([object()]))
    with pytest.raises(UsageError, match=r"x\.npz: the arrays cannot be read.*not an array of numbers"):
        read_inputs(tmp_path / "x.npz", (A,))


def _npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (
            "{'descr': '|i1', 'fortran_order': False, 'shape': (99999999999999,)}\n",
            "its shape does not fit its 0 bytes",
        ),
        ("{'descr': '|i1', 'fortran_order': False, 'shape': ((((\n", "EOF in multi-line statement"),
        ("-" * 9000 + "1\n", "the header of the array is nested too deeply"),
    ],
)
def test_a_damaged_header_is_refused(tmp_path: Path, header: str, reason: str) -> None:
    (tmp_path / "x.npy").write_bytes(_npy(header))
    with pytest.raises(UsageError, match=rf"x\.npy: the arrays cannot be read: .*{reason}"):
        read_inputs(tmp_path / "x.npy", (A,))


@pytest.mark.parametrize(
    ("offsets", "value", "reason"),
    [((8, 10), 99, "compressed in another way than by deflate"), ((6, 8), 1, "is encrypted")],
)
def test_an_archive_of_another_kind_is_refused(
    tmp_path: Path, offsets: tuple[int, int], value: int, reason: str
) -> None:
    np.savez(tmp_path / "x.npz", input0=ONES)
    data = bytearray((tmp_path / "x.npz").read_bytes())
    local, central = offsets
    data[local] = data[data.find(b"PK\x01\x02") + central] = value
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(UsageError, match=reason):
        read_inputs(tmp_path / "x.npz", (A,))


def test_an_archive_of_something_else_than_arrays_is_refused(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("input0", "text")
    with pytest.raises(UsageError, match=r"x\.npz: the arrays cannot be read: input0 is not an array"):
        read_inputs(tmp_path / "x.npz", (A,))


def test_arrays_in_another_byte_order_are_inputs(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", REALS.astype(">f4"))
    ((x,),) = read_inputs(tmp_path / "x.npy", (B,)).runs
    assert x.dtype == np.dtype("<f4")
    np.testing.assert_array_equal(x, REALS)


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        write_outputs(tmp_path / "absent" / "y.npz", (A,), (ONES,))


def test_cases_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    arrays = {
        f"case{n}_{kind}0": np.full((2, 2), n, np.int8) for n in (10, 2) for kind in ("input", "output")
    }
    np.savez(tmp_path / "c.npz", **arrays)  # type: ignore[arg-type]
    cases = read_cases(tmp_path / "c.npz", (A,), (A,))
    assert [(c.name, int(c.inputs[0][0, 0])) for c in cases] == [("case2", 2), ("case10", 10)]


def test_a_case_without_its_output_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", case0_input0=ONES)
    with pytest.raises(UsageError, match="no array case0_output0"):
        read_cases(tmp_path / "c.npz", (A,), (A,))


def test_integers_have_to_be_equal() -> None:
    other = ONES.copy()
    other[1, 0] = 5
    found = compare((A,), (ONES,), (other,), (1.0,))
    assert found is not None
    assert (found.index, found.expected, found.actual, found.count, found.total) == ((1, 0), 1, 5, 1, 4)
    assert compare((A,), (ONES,), (ONES.copy(),), (1.0,)) is None


def test_floats_are_judged_by_the_largest_of_all_cases() -> None:
    small = np.array([0.0, 0.0, 1e-3], np.float32)
    largest = largest_outputs([ReferenceRun("0", (), (REALS,)), ReferenceRun("1", (), (small,))])
    assert largest == (100.0,)
    near = small + np.float32(0.9e-3)
    assert compare((B,), (small,), (near,), largest) is None
    found = compare((B,), (small,), (small + np.float32(1.1e-3),), largest)
    assert found is not None
    assert found.count == 3


def test_nan_equals_only_nan() -> None:
    nan = np.array([np.nan, 1, 2], np.float32)
    assert compare((B,), (nan,), (nan.copy(),), (2.0,)) is None
    found = compare((B,), (np.array([0, 1, 2], np.float32),), (nan,), (2.0,))
    assert found is not None
    assert found.index == (0,)


def test_what_is_not_finite_does_not_widen_the_tolerance() -> None:
    odd = np.array([np.inf, np.nan, 2.0], np.float32)
    largest = largest_outputs([ReferenceRun("0", (), (odd,))])
    assert largest == (2.0,)
    assert compare((B,), (odd,), (odd.copy(),), largest) is None
    found = compare((B,), (odd,), (np.array([np.inf, np.nan, 3.0], np.float32),), largest)
    assert found is not None
    assert (found.index, found.count) == ((2,), 1)


@pytest.mark.parametrize("name", ["b", "file", "allow_pickle"])
def test_outputs_come_back_under_their_names(tmp_path: Path, name: str) -> None:
    write_outputs(tmp_path / "y.npz", (replace(B, name=name),), (REALS,))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")[name], REALS)


def test_random_inputs_fill_the_range_and_repeat() -> None:
    wide = Interface("w", "w", (4096,), DType.INT8, None, 4096)
    (one,), (two,) = random_inputs((wide,), 1), random_inputs((wide,), 1)
    np.testing.assert_array_equal(one, two)
    assert (one.min(), one.max()) == (-128, 127)


def test_random_truth_values_are_both() -> None:
    flags = Interface("f", "f", (64,), DType.BOOL, None, 64)
    (found,) = random_inputs((flags,), 1)
    assert found.dtype == np.bool_
    assert 0 < found.sum() < 64
