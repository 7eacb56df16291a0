"""Constants in the order of a kernel: groups of rows, padding, records of words."""

import numpy as np
import pytest

from crtgen.compiler.kernels.engine.layout import biased, grouped, groups_of, in_groups, records, stream
from crtgen.compiler.kernels.engine.words import Words


@pytest.mark.parametrize(
    ("outputs", "groups"), [(8, [(4, 2)]), (9, [(4, 2), (1, 1)]), (3, [(3, 1)]), (0, [])]
)
def test_groups_of_channels_end_with_what_is_left(outputs: int, groups: list[tuple[int, int]]) -> None:
    assert list(groups_of(outputs, 4)) == groups


def test_rows_are_grouped_by_steps_with_zeros_behind() -> None:
    rows = np.arange(1, 10, dtype=np.int8).reshape(3, 3)
    assert grouped(rows, 2, 2).tolist() == [[1, 2, 4, 5, 3, 0, 6, 0], [7, 8, 0, 0, 9, 0, 0, 0]]


def test_rows_without_numbers_are_groups_without_any() -> None:
    assert grouped(np.zeros((3, 0), np.int8), 2, 16).shape == (2, 0)


def test_the_last_group_of_channels_is_a_smaller_one() -> None:
    rows = np.arange(6, dtype=np.int8).reshape(3, 2)
    assert in_groups(rows, groups_of(3, 2)).tolist() == [0, 2, 1, 3, 4, 5]
    assert in_groups(rows, groups_of(3, 2), int4=True).tolist() == [2 << 4, 1 | 3 << 4, 4, 5]


def test_biases_stand_before_the_weights_of_their_group() -> None:
    const = biased(
        np.array([[1, 2], [3, 4], [5, 6]], np.float32),
        np.array([7, 8, 9], np.float32),
        2,
        ("output", "input"),
    )
    assert const.data.tolist() == [7, 8, 1, 3, 2, 4, 9, 5, 6]
    assert const.note == "[output / 2][bias, then input][output % 2]"


def test_parts_of_records_are_whole_words() -> None:
    taps = np.array([[1, 2, 3], [4, 5, 6]], np.int8)
    assert records(taps, np.array([7, 8], np.uint32)).tolist() == [[0x030201, 7], [0x060504, 8]]


def test_a_stream_is_made_a_part_at_a_time() -> None:
    asked = []

    def make(some: slice) -> Words:
        asked.append(some.stop - some.start)
        return np.arange(some.start, some.stop, dtype=np.uint32)[:, None].repeat(1 << 15, axis=1)

    const = stream(5, 1 << 15, make, "numbers", np.array([9], np.uint32))
    assert const.data[[0, 1, -1]].tolist() == [9, 0, 4]
    assert (const.shape, asked) == ((1 + (5 << 15),), [2, 2, 1])
