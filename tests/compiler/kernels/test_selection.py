"""The choice among kernels by their costs: code of a function counts once, and layers move together."""

from dataclasses import replace

import pytest

from crtgen.compiler.kernels import Cost, Kernel
from crtgen.compiler.kernels.engine.selection import choose
from crtgen.compiler.level import LEVELS, Level

EVEN = Level("even", "-O2", ("speed",), flash=1.0, memory=1.0, slower=0.05)


def _kernel(function: str, instructions: float, code: float, constants: int = 0) -> Kernel:
    return Kernel(function, function, None, cost=Cost(instructions, code, constants, time=instructions))


def _chosen(candidates: list[list[Kernel]], level: Level) -> list[str]:
    named = {str(i): found for i, found in enumerate(candidates)}
    return [k.design for k in choose(named, level, lambda name, kernel: 1).values()]


def test_without_a_price_of_flash_the_fastest_is_taken() -> None:
    free = replace(EVEN, flash=0.0)
    assert _chosen([[_kernel("slow", 101, 1), _kernel("fast", 100, 1000)]], free) == ["fast"]


@pytest.mark.parametrize(("instructions", "taken"), [(149, "small"), (151, "fast")])
def test_shares_are_weighed(instructions: float, taken: str) -> None:
    """Half of the flash is worth half of the instructions."""
    assert _chosen([[_kernel("fast", 100, 1000), _kernel("small", instructions, 500)]], EVEN) == [taken]


def test_constants_are_flash() -> None:
    found = [_kernel("fast", 100, 10, 990), _kernel("small", 110, 500)]
    assert _chosen([found], EVEN) == ["small"]


def test_code_that_layers_share_counts_once() -> None:
    """For one layer the shared function is as long as its own; for four it takes a quarter."""

    def layer(i: int) -> list[Kernel]:
        return [_kernel(f"own{i}", 100, 1000), _kernel("shared", 120, 1000)]

    assert _chosen([layer(0)], EVEN) == ["own0"]
    assert _chosen([layer(i) for i in range(4)], EVEN) == ["shared"] * 4


def test_a_function_of_a_busy_layer_stays_apart() -> None:
    """The last layer has nearly all instructions, so only the others share."""
    small = [[_kernel(f"own{i}", 10, 1000), _kernel("shared", 12, 1000)] for i in range(4)]
    busy = [_kernel("own4", 10_000, 1000), _kernel("shared", 20_000, 1000)]
    assert _chosen([*small, busy], EVEN) == ["shared"] * 4 + ["own4"]


def test_what_levels_want() -> None:
    assert LEVELS["speed"].objective(0.01, 0) > LEVELS["speed"].objective(0, 0.4)
    assert LEVELS["balanced"].objective(0.01, 0) == LEVELS["balanced"].objective(0, 0.01)


@pytest.mark.parametrize(("room", "taken"), [(1000, "fast"), (1900, "small")])
def test_scratch_counts_beyond_what_a_model_needs_anyway(room: int, taken: str) -> None:
    """The other layer needs 2,000 bytes; 900 more are worth 45 % of the instructions."""
    found = [
        Kernel("fast", "fast", None, cost=Cost(100, 10, scratch=1000, time=100)),
        Kernel("small", "small", None, cost=Cost(120, 10, time=120)),
    ]
    other = [_kernel("other", 1, 10)]
    chosen = choose(
        {"a": found, "b": other},
        EVEN,
        lambda name, kernel: {"a": room, "b": 2000}[name] + kernel.cost.scratch,
    )
    assert chosen["a"].design == taken
