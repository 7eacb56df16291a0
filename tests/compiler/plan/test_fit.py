"""What certainly does not fit is refused before any compiler runs."""

from dataclasses import replace

import pytest

import crtgen
from crtgen.base.errors import DoesNotFitError
from crtgen.boards import board_of_core, find_board
from crtgen.compiler.plan import check_fit
from tests.support import ROOT

DIGITS = ROOT / "demo" / "digits.tflite"
AN386 = find_board("mps2_an386")


def test_what_fits_exactly_passes() -> None:
    check_fit(AN386, {}, AN386.ram, AN386.flash)


@pytest.mark.parametrize(
    ("arena", "constants", "what"),
    [(AN386.ram + 1, 0, "the arena needs"), (0, AN386.flash + 1, "the constants need")],
)
def test_a_byte_too_much(arena: int, constants: int, what: str) -> None:
    with pytest.raises(DoesNotFitError, match=f"{what} .* bytes, and .* has") as caught:
        check_fit(AN386, {}, arena, constants)
    assert caught.value.where == "mps2_an386"


def test_another_memory_is_named() -> None:
    small = replace(AN386.memory(AN386.data), name="tcm", size=1 << 10)
    board = replace(AN386, memories=(*AN386.memories, small))
    with pytest.raises(DoesNotFitError, match="tcm has 1,024") as caught:
        check_fit(board, {"arena": "tcm"}, 2000, 0)
    assert caught.value.hint == f"{AN386.data} is large enough: --place arena={AN386.data}"


def test_compile_says_it() -> None:
    memories = tuple(replace(m, size=600) if m.name == AN386.data else m for m in AN386.memories)
    with pytest.raises(DoesNotFitError, match="the arena needs"):
        crtgen.compile([crtgen.load(DIGITS)], replace(AN386, memories=memories))


def test_a_board_without_memories_has_no_limit() -> None:
    """The host, and a board of which Zephyr alone knows what it has."""
    for board in (find_board("host"), board_of_core("cortex-m3")):
        check_fit(board, {}, 1 << 40, 1 << 40)
