"""Constants in RAM: the choice is the best one, arenas do not grow, memories are not overfilled."""

from collections.abc import Iterable, Mapping
from itertools import chain, combinations

import pytest

from crtgen.boards import find_board
from crtgen.boards.board import FlashReads
from crtgen.compiler.kernels import Target
from crtgen.compiler.plan import FreeMemory, Plan, Resident, place_constants, plan_model
from crtgen.network.frontends import load
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.support import INT8_MODELS, ROOT, model_path, nightly

FLASH = FlashReads(wait_states=5, width=8, code_cache=1024, data_cache=256, ahead=True)
ENDLESS = 1 << 30


def target(board: str = "nucleo_l4r5zi", optimize: str = "speed") -> Target:
    return Target(find_board(board).core, optimize, code=FLASH, constants=FLASH)


def planned(path: str, on: Target) -> Plan:
    graph, _ = run_passes(load(path), DEFAULT_PASSES)
    return plan_model(graph, on)[0]


def placed(plan: Plan, on: Target, *free: FreeMemory) -> Resident:
    (found,) = place_constants([plan], on, free)
    return found


def cycles(plan: Plan) -> float:
    return sum(step.kernel.cycles or 0 for step in plan.steps)


def sizes(plan: Plan) -> Mapping[str, int]:
    return {step.name: sum(-(-c.nbytes // 16) * 16 for c in step.kernel.consts) for step in plan.steps}


def subsets(names: Iterable[str]) -> Iterable[tuple[str, ...]]:
    known = tuple(names)
    return chain.from_iterable(combinations(known, n) for n in range(len(known) + 1))


def test_no_other_choice_saves_more() -> None:
    """Every set of layers is tried, for each of twelve sizes of the memory."""
    on = target()
    plan = planned(str(ROOT / "demo" / "digits.tflite"), on)
    whole = placed(plan, on, FreeMemory("ram", ENDLESS))
    after = {step.name: step.kernel.cycles or 0 for step in whole.plan.steps}
    gains = {step.name: (step.kernel.cycles or 0) - after[step.name] for step in plan.steps}
    gains = {name: gain for name, gain in gains.items() if name in whole.memories}
    needs = sizes(plan)
    assert len(gains) > 2
    for twelfth in range(1, 13):
        room = sum(needs[name] for name in gains) * twelfth // 12
        best = max(
            sum(gains[name] for name in chosen)
            for chosen in subsets(gains)
            if sum(needs[name] for name in chosen) <= room
        )
        found = placed(plan, on, FreeMemory("ram", room))
        assert sum(needs[name] for name in found.memories) <= room
        if best >= cycles(plan) / 50:
            assert cycles(plan) - cycles(found.plan) == pytest.approx(best)
        else:
            assert not found.memories


@pytest.mark.models
@pytest.mark.parametrize(
    ("board", "optimize"),
    [
        nightly("nucleo_l4r5zi", "speed"),
        ("rpi_pico", "size"),
        nightly("nucleo_h743zi", "size"),
        ("ek_ra8m1", "speed"),
    ],
)
@pytest.mark.parametrize("name", INT8_MODELS)
def test_arenas_do_not_grow_and_no_run_takes_longer(name: str, board: str, optimize: str) -> None:
    on = target(board, optimize)
    plan = planned(str(model_path(name)), on)
    for room in (4096, 32_768, ENDLESS):
        found = placed(plan, on, FreeMemory("ram", room))
        assert found.plan.arena <= plan.arena
        assert cycles(found.plan) <= cycles(plan)
        assert sum(sizes(found.plan)[name] for name in found.memories) <= room
        assert [step.name for step in found.plan.steps if step.name not in found.memories] == [
            step.name for step in plan.steps if step.name not in found.memories
        ]


@pytest.mark.models
def test_the_memory_that_waits_least_is_filled_first() -> None:
    on = target()
    plan = planned(str(model_path("ad01_int8")), on)
    slow = FreeMemory("sdram", ENDLESS, FlashReads(wait_states=2, width=8))
    found = placed(plan, on, slow, FreeMemory("dtcm", 100_000))
    by_memory = {
        memory: sum(sizes(found.plan)[name] for name, where in found.memories.items() if where == memory)
        for memory in ("sdram", "dtcm")
    }
    assert 50_000 < by_memory["dtcm"] <= 100_000
    assert by_memory["sdram"] > 100_000
    both = placed(plan, on, FreeMemory("dtcm", ENDLESS))
    assert cycles(both.plan) < cycles(found.plan) < cycles(plan)
    assert [note.node for note in found.rewrites] == ["dtcm", "sdram"]


def test_what_a_layer_shares_with_no_wait_stays() -> None:
    """A flash that never waits, and a gain below a fiftieth of a run."""
    on = Target(find_board("mps2_an386").core, "speed")
    plan = planned(str(ROOT / "demo" / "digits.tflite"), on)
    assert not placed(plan, on, FreeMemory("ram", ENDLESS)).memories
    assert not placed(planned(str(ROOT / "demo" / "digits.tflite"), target()), target()).memories
