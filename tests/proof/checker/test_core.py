"""Rights by the MPU: of the last region that has an address (PMSAv7), or of the only one (PMSAv8)."""

import pytest

from crtgen.proof.checker.core.registers import Protection

NORMAL, DEVICE = 0b00110 << 16, 0b00001 << 16  # TEX, S, C, B: write-back, and a device
FULL, READ_ONLY, NO_ACCESS, NO_CODE = 3 << 24, 6 << 24, 0, 1 << 28
MAIR = 0x04FF, 0  # attribute 0 is normal memory, 1 a device


def v7(bits: int, attributes: int, off: int = 0) -> int:
    """RASR of a region of 2^bits bytes, without some of its eight parts."""
    return attributes | off << 8 | (bits - 1) << 1 | 1


def of_v7(*regions: tuple[int, int], control: int = 1) -> Protection:
    return Protection(False, control, dict(enumerate(regions)), MAIR)


def of_v8(*regions: tuple[int, int], control: int = 1) -> Protection:
    return Protection(True, control, dict(enumerate(regions)), MAIR)


CODE, RAM = (0, v7(16, NORMAL | READ_ONLY)), (0x20000000, v7(16, NORMAL | FULL | NO_CODE))


@pytest.mark.parametrize(
    ("protection", "span", "what", "refused"),
    [
        (of_v7(CODE, RAM), (0, 0x10000), "run", None),
        (of_v7(CODE, RAM), (0, 0x10004), "run", 0x10000),
        (of_v7(CODE, RAM), (0, 0x100), "write", 0),
        (of_v7(CODE, RAM), (0x20000000, 0x20010000), "write", None),
        (of_v7(CODE, RAM), (0x20000000, 0x20000004), "run", 0x20000000),
        (of_v7(CODE, RAM, control=0), (0x20000000, 0x20000004), "run", None),
        (of_v7(CODE, RAM, control=5), (0x60000000, 0x60000004), "read", None),
        (of_v7(CODE, RAM, control=1), (0x60000000, 0x60000004), "read", 0x60000000),
        (of_v7(control=0), (0x40000000, 0x40000004), "run", 0x40000000),
        (of_v7(CODE, RAM, (0x20008000, v7(8, NO_ACCESS))), (0x20000000, 0x20010000), "read", 0x20008000),
        (of_v7((0x20008000, v7(8, NO_ACCESS)), CODE, RAM), (0x20000000, 0x20010000), "read", None),
        (of_v7((0x20000000, v7(16, NORMAL | FULL, off=4))), (0x20000000, 0x20010000), "read", 0x20004000),
        (of_v7((0x20000000, v7(16, DEVICE | FULL))), (0x20000000, 0x20010000), "is_normal", 0x20000000),
        (of_v7((0x20000000, v7(16, FULL))), (0x20000000, 0x20010000), "is_normal", 0x20000000),
        (of_v7((0x20000000, v7(16, NORMAL | FULL) & ~1)), (0x20000000, 0x20010000), "read", 0x20000000),
        (of_v8((2, 0xFFE1)), (0, 0x10000), "read", None),
        (of_v8((2, 0xFFE1)), (0, 0x10020), "read", 0x10000),
        (of_v8((3, 0xFFE1)), (0, 4), "run", 0),
        (of_v8((6, 0xFFE1)), (0, 4), "write", 0),
        (of_v8((2, 0xFFE3)), (0, 4), "is_normal", 0),
        (of_v8((2, 0xFFE1)), (0, 4), "is_normal", None),
        (Protection(True, 1, {0: (2, 0xFFEB)}, (0, 0xFF00)), (0, 4), "is_normal", None),
        (Protection(True, 1, {0: (2, 0xFFE9)}, (0, 0xFF00)), (0, 4), "is_normal", 0),
        (of_v8((2, 0xFFE1), (0x8002, 0x80E1)), (0, 0x10000), "read", 0x8000),
        (of_v8((2, 0xFFF1)), (0, 4), "run", 0),
    ],
)  # fmt: skip
def test_what_is_allowed(
    protection: Protection, span: tuple[int, int], what: str, refused: int | None
) -> None:
    assert protection.first_refused(*span, what) == refused
