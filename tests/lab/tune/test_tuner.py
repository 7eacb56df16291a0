"""Limits, interruptions and the store, on a board that takes what costs say."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crtgen import api
from crtgen.base.errors import DoesNotFitError
from crtgen.compiler.byoc import read_generator
from crtgen.compiler.kernels.engine.variants import is_coded
from crtgen.compiler.tuned import CORE, Tuned
from crtgen.lab.sweep.store import JobStore
from crtgen.lab.tune import tuner
from crtgen.lab.tune.layers import layers_of
from crtgen.lab.tune.tuner import Limits, Result, Tuning, tune
from tests.lab.tune.dense import dense
from tests.proof.checker.test_npu import two_calls
from tests.support import ROOT

pytest.importorskip("ortools")

_BESIDE = 5000
"""Bytes of flash, and of RAM, of what is no kernel."""


def _compiled(tuned: Sequence[Tuned]) -> api.Compiled:
    return api.load(ROOT / "demo" / "digits.tflite").compile("mps2_an386", optimize="speed", tuned=tuned)


def _estimated(compiled: api.Compiled, **_: object) -> Any:
    """A report as of an image."""
    (plan,), (module,) = compiled.plans, compiled.modules
    sizes: dict[str, int] = {}
    for info, step in zip(module.info.layers, plan.steps, strict=True):
        sizes |= {function: 0 for function in info.parts if function not in sizes}
        sizes[info.function] = round(step.kernel.cost.code)
        sizes |= {name: const.nbytes for name, const in zip(info.consts, step.kernel.consts, strict=True)}
    costs = [round(step.kernel.cost.instructions) for step in plan.steps]
    return SimpleNamespace(
        model=module.info.name,
        board=compiled.board.name,
        optimize="speed",
        cycles=None,
        npu=compiled.reports[0].npu,
        instructions=sum(costs),
        image_flash_bytes=_BESIDE + sum(sizes.values()),
        image_ram_bytes=_BESIDE + plan.arena,
        layers=[SimpleNamespace(instructions=cost, ticks=None) for cost in costs],
        image=SimpleNamespace(
            sizes=SimpleNamespace(symbols=[SimpleNamespace(name=n, size=s) for n, s in sizes.items()])
        ),
    )


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Tunes the demonstration network with these limits; ``most`` images, then somebody interrupts."""

    def run(flash: int | None = None, ram: int | None = None, most: int = 100) -> Result:
        left = [most]

        def profiled(compiled: api.Compiled, **_: object) -> Any:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return _estimated(compiled)

        monkeypatch.setattr(tuner, "measure_model", _estimated)
        monkeypatch.setattr(tuner, "profile_model", profiled)
        with JobStore(tmp_path / "sweep.db") as store:
            return tune(Tuning(_compiled, {}), store, Limits(flash, ram))

    return run


def test_limits_hold(tuned: Callable[..., Result]) -> None:
    free = tuned()
    assert free.entry.tuned <= free.entry.untuned
    flash, ram = _estimated(_compiled(())).image_flash_bytes, _estimated(_compiled(())).image_ram_bytes
    less = tuned(flash=flash - 300)
    assert less.after.image_flash_bytes is not None
    assert less.after.image_flash_bytes <= flash - 300
    small = tuned(flash=2 * flash, ram=ram - 100)
    assert small.after.image_ram_bytes is not None
    assert small.after.image_ram_bytes <= ram - 100
    more = tuned(flash=2 * flash, ram=2 * ram)
    assert more.entry.tuned <= free.entry.tuned <= less.entry.tuned
    assert more.entry.tuned <= small.entry.tuned


def _dense(tuned: Sequence[Tuned]) -> api.Compiled:
    return api.compile([api.Model(dense())], "mps2_an386", optimize="speed", tuned=tuned)


def test_weights_are_coded_where_flash_is_given(
    tuned: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.lab.tune.test_tuner._compiled", _dense)
    compiled = _compiled(())
    assert not any(is_coded(c.variant) for layer in layers_of(compiled) for c in layer.candidates)
    flash = _estimated(compiled).image_flash_bytes
    assert not any(is_coded(layer.variant) for layer in tuned().entry.layers)
    less = tuned(flash=flash - 700, ram=3 * _BESIDE)
    assert less.after.image_flash_bytes is not None
    assert less.after.image_flash_bytes <= flash - 700
    coded = [layer for layer in less.entry.layers if is_coded(layer.variant)]
    assert coded
    assert all(", coded" in layer.design for layer in coded)
    (plan,) = _compiled([less.entry]).plans
    kernels = {step.name: step.kernel.design for step in plan.steps}
    assert all(kernels[layer.name] == layer.design for layer in less.entry.layers)


@pytest.mark.parametrize("limits", [{"flash": _BESIDE + 100}, {"ram": _BESIDE + 100}])
def test_what_cannot_be(tuned: Callable[..., Result], limits: dict[str, int]) -> None:
    with pytest.raises(DoesNotFitError, match="no choice of kernels") as caught:
        tuned(**limits)
    assert caught.value.hint == "give more flash or RAM"


def test_what_was_measured_stays_measured(tuned: Callable[..., Result]) -> None:
    with pytest.raises(KeyboardInterrupt):
        tuned(most=2)
    rest = tuned()
    assert 0 < rest.measured < rest.candidates
    assert rest.images > 1
    again = tuned()
    assert (again.measured, again.images) == (0, 0)
    assert again.entry == rest.entry


def _with_npu(model: Path, tuned: Sequence[Tuned]) -> api.Compiled:
    """Two small calls of an NPU around a layer of the core."""
    npu = [read_generator("ethos-u:config=ethos-u55-128")]
    return api.load(model).compile("mps3_an547", optimize="speed", tuned=tuned, generators=npu, fallback=True)


def test_calls_of_an_npu_are_tried_on_the_core(
    tuned: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("ethosu")
    path = tmp_path / "calls.tflite"
    path.write_bytes(two_calls())
    monkeypatch.setattr("tests.lab.tune.test_tuner._compiled", partial(_with_npu, path))
    result = tuned()
    assert result.before.npu is not None
    assert result.after.npu is None
    moved = [layer.name for layer in result.entry.layers if layer.design == CORE]
    assert moved == ["fully_connected", "fully_connected_1"]
    assert result.before.instructions is not None
    assert result.entry.untuned == result.before.instructions + result.before.npu["cycles_by_vela"]
    assert result.entry.tuned < result.entry.untuned
