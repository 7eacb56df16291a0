"""The claim that every input takes the same time: what breaks it is named, even where outputs are right."""

from pathlib import Path

import pytest

from tests.proof.checker import tiny
from tests.proof.checker.test_attacks import relu

pytestmark = pytest.mark.qemu

_CASES = {
    "a branch": ("cmp r0, #0 ; bge 1f ; movs r0, #0 ; 1:", "cortex-m0plus"),
    "a condition": ("cmp r0, #0 ; it lt ; strlt r3, [r1, #20] ; bics r0, r0, r0, asr #31", "cortex-m3"),
    "an address": ("movs r2, #128 ; add r2, r0 ; ldr r3, =table ; ldrsb r0, [r3, r2]", "cortex-m4"),
    "a division": ("movs r2, #1 ; sdiv r0, r0, r2 ; bics r0, r0, r0, asr #31", "cortex-m4"),
    "a long product": ("movs r2, #1 ; smull r0, r2, r0, r2 ; bics r0, r0, r0, asr #31", "cortex-m3"),
}
_TABLE = (
    ".section .rodata ; table: .rept 128 ; .byte 0 ; .endr ; .set n, 0 ; .rept 128 ; .byte n ; .set n, n + 1"
)


def _made(cause: str) -> tuple[dict[str, str], str]:
    text, core = _CASES[cause]
    more = f"{_TABLE} ; .endr ; .text" if cause == "an address" else ""
    return {**relu(text), "more": more}, core


@pytest.mark.parametrize("cause", _CASES)
def test_a_cause_is_named_with_its_place(cause: str, tmp_path: Path) -> None:
    proof = tiny.check(tmp_path, *_made(cause))
    assert not proof.stopped, proof.stopped
    assert [each for each in proof.varying if each.startswith(f"{cause} at 0x")] == list(proof.varying)
    assert len(proof.varying) == 1
    assert proof.varying[0].endswith(" in tiny_compute")


@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m55"])
def test_a_mask_takes_the_same_time(core: str, tmp_path: Path) -> None:
    assert tiny.check(tmp_path, {}, core).varying == ()


def test_a_move_that_depends_on_a_condition_takes_a_cycle_either_way(tmp_path: Path) -> None:
    proof = tiny.check(tmp_path, relu("cmp r0, #0 ; it lt ; movlt r0, #0"), "cortex-m4")
    assert proof.is_proven
    assert proof.varying == ()


def test_a_long_product_takes_the_same_time_on_other_cores(tmp_path: Path) -> None:
    changed, _ = _made("a long product")
    assert tiny.check(tmp_path, changed, "cortex-m4").varying == ()
