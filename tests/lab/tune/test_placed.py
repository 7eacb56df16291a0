"""Tuning on boards with several memories: each layer is measured where an image has its constants."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import crtgen
from crtgen import api
from crtgen.boards import Board, find_board
from crtgen.boards.board import FlashReads
from crtgen.compiler.kernels.engine.variants import is_coded
from crtgen.compiler.tuned import Tuned, read_tuned, write_tuned
from crtgen.lab.sweep.store import JobStore
from crtgen.lab.tune import tuner
from crtgen.lab.tune.tuner import Limits, Tuning, tune
from tests.firmware.project.crowded import DIGITS
from tests.lab.tune.dense import dense
from tests.support import nightly

pytest.importorskip("ortools")

_BESIDE = 5000


def _board(room: int, waits: int) -> Board:
    """A board whose flash waits, and its RAM somewhat, with ``room`` bytes of a DTCM."""
    board = find_board("mps3_an547")
    sizes = {"dtcm": 1024 + room, "ddr": 0}
    reads = {"code": FlashReads(40, 8), "ram": FlashReads(waits, 8)}
    memories = (replace(m, size=sizes.get(m.name, m.size), reads=reads.get(m.name)) for m in board.memories)
    return replace(board, memories=tuple(memories), slots=None)


def _estimated(compiled: api.Compiled, **_: object) -> Any:
    """A report as of an image: cycles by the model of the core."""
    (plan,), (module,) = compiled.plans, compiled.modules
    sizes: dict[str, int] = {}
    for info, step in zip(module.info.layers, plan.steps, strict=True):
        sizes |= {function: 0 for function in info.parts if function not in sizes}
        sizes[info.function] = round(step.kernel.cost.code)
        sizes |= {name: const.nbytes for name, const in zip(info.consts, step.kernel.consts, strict=True)}
    cycles = [round(step.kernel.cycles or 0) for step in plan.steps]
    copied = sum(compiled.resident_bytes.values())
    return SimpleNamespace(
        model=module.info.name,
        board=compiled.board.name,
        optimize="speed",
        cycles=sum(cycles),
        npu=None,
        instructions=None,
        image_flash_bytes=_BESIDE + sum(sizes.values()),
        image_ram_bytes=_BESIDE + copied + plan.arena + sum(part.size for part in plan.parts.values()),
        layers=[SimpleNamespace(instructions=None, ticks=count) for count in cycles],
        image=SimpleNamespace(
            sizes=SimpleNamespace(symbols=[SimpleNamespace(name=n, size=s) for n, s in sizes.items()])
        ),
    )


def _digits(board: Board, place: Mapping[str, str], tuned: Sequence[Tuned] = ()) -> api.Compiled:
    return crtgen.load(DIGITS).compile(board, optimize="speed", place=place, tuned=tuned)


def _memories(compiled: api.Compiled) -> dict[str, str]:
    resident = compiled.resident[0] if compiled.resident else {}
    return {
        step.name: resident.get(step.name, "code") for step in compiled.plans[0].steps if step.kernel.consts
    }


def _dense(board: Board, place: Mapping[str, str], tuned: Sequence[Tuned] = ()) -> api.Compiled:
    return api.compile([api.Model(dense())], board, optimize="speed", place=place, tuned=tuned)


@pytest.mark.parametrize(
    ("compile", "place", "room", "waits"),
    [
        nightly(_digits, {}, 400, 25),  # a part of the arena in the DTCM, constants in the RAM
        nightly(_digits, {}, 2112, 40),  # the arena and some constants in the DTCM
        nightly(_digits, {"arena": "ram"}, 2112, 40),  # constants of some layers in the DTCM
        nightly(_digits, {"weights": "code"}, 400, 25),
        nightly(_digits, {"weights": "dtcm"}, 8192, 25),
        (_dense, {}, 16, 25),  # coded weights in the RAM
        (_dense, {"arena": "ram"}, 4096, 40),  # and in the DTCM
        (_dense, {"weights": "code"}, 4096, 25),
    ],
)
def test_a_tuned_network_is_placed_as_it_was_measured(
    compile: Callable[..., api.Compiled],
    place: dict[str, str],
    room: int,
    waits: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board, coded = _board(room, waits), compile is _dense
    built: list[api.Compiled] = []

    def measured(compiled: api.Compiled, **_: object) -> Any:
        built.append(compiled)
        return _estimated(compiled)

    monkeypatch.setattr(tuner, "measure_model", measured)
    monkeypatch.setattr(tuner, "profile_model", _estimated)
    usual = compile(board, place).placed("server", profile=True)
    before = _estimated(usual)
    limits = Limits(before.image_flash_bytes - 700 if coded else None, 2 * before.image_ram_bytes)
    with JobStore(tmp_path / "sweep.db") as store:
        found = tune(Tuning(partial(compile, board, place), {}), store, limits)
    write_tuned(tmp_path / "tune.toml", [found.entry])
    (entry,) = read_tuned(tmp_path / "tune.toml")
    assert entry == found.entry
    again = compile(board, place, [entry]).placed("server", profile=True)
    assert _estimated(again).cycles == entry.tuned
    assert coded or entry.tuned <= entry.untuned
    assert _memories(again) == _memories(built[-1]) == _memories(usual)
    assert again.request.place == built[-1].request.place
    assert again.plans[0].parts == built[-1].plans[0].parts
    assert set(usual.plans[0].parts) == ({"dtcm"} if room == 400 else set())
    noted = {choice.name: choice.memory for choice in entry.layers}
    expected = {} if "weights" in place else _memories(usual)
    assert noted == {name: expected.get(name, "") for name in noted}
    assert len(set(expected.values())) == ("weights" not in place) * (2 if room == 2112 else 1)
    assert "code" not in expected.values() or room == 2112
    assert any(is_coded(choice.variant) for choice in entry.layers) or not coded
