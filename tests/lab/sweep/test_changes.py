"""Two sweeps compared: what changed, and what is to blame."""

from dataclasses import replace
from typing import Any

from crtgen.lab.sweep.changes import compare
from crtgen.lab.sweep.store import StoreRow

GCC = "gcc: 12.2; qemu: 7.2"


def row(name: str = "a", **changes: Any) -> StoreRow:
    made = StoreRow(
        digest=f"{name}1",
        kind="model",
        model=f"{name}.tflite",
        board="host",
        label="speed",
        source="s",
        settings="{}",
        code="0.1 abc",
        toolchain=GCC,
        state="done",
        figures={"instructions": 1_000_000, "flash_bytes": 500},
        layers={},
        project="p",
        error="",
        message="",
        log="",
        worker="w",
        seconds=1.0,
        finished="",
    )
    return replace(made, **changes)


def other(**changes: Any) -> StoreRow:
    """The same job with another address."""
    return row(**{"digest": "a2", **changes})


def test_who_is_to_blame() -> None:
    flash = {"instructions": 1_000_000, "flash_bytes": 501}
    for changes, blame in (
        ({"source": "t"}, "the model"),
        ({"settings": '{"stack": 1}'}, "options"),
        ({"code": "0.2 def"}, "crtgen: 0.1 abc -> 0.2 def"),
        ({"toolchain": "gcc: 13.1; qemu: 7.2"}, "the toolchain: gcc: 12.2 -> gcc: 13.1"),
    ):
        found = compare([row()], [other(figures=flash, project="q", **changes)])
        (change,) = found.changed
        assert change.blame == (blame,)
        assert change.figures == (("flash_bytes", 500, 501),)
        assert str(change) == f"a.tflite on host, speed: flash_bytes 500 -> 501, by {blame}"
        assert found.reasons == {blame: 1}


def test_what_cannot_be_measured_is_no_change() -> None:
    near = {"instructions": 1_000_100, "flash_bytes": 500}
    far = {"instructions": 1_000_101, "flash_bytes": 500}
    assert not compare([row()], [other(code="x", figures=near)]).changed
    (change,) = compare([row()], [other(code="x", figures=far)]).changed
    assert change.same_code
    assert str(change).endswith("by crtgen: 0.1 abc -> x (the generated code is the same)")


def test_success_and_failure() -> None:
    wrong = {"state": "failed", "error": "BuildError", "figures": {}, "code": "x"}
    (change,) = compare([row()], [other(**wrong)]).changed
    assert (change.before, change.now) == ("done", "BuildError")
    assert not compare([row()], [other(code="x", state="waiting", figures={})]).changed


def test_jobs_of_one_sweep_only() -> None:
    found = compare([row("a"), row("b")], [row("a"), row("c"), row("d")])
    assert (found.new, found.gone, found.reasons, found.changed) == (2, 1, {}, ())
