"""Parsing of option values.

The compiler is imported only when needed: running a kept image does not need it.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crtgen.base.errors import UsageError
from crtgen.boards import Board, check_board, parse_size
from crtgen.lab.settings import current_settings

if TYPE_CHECKING:
    from crtgen.compiler.byoc import Generator
    from crtgen.compiler.tuned import Tuned
    from crtgen.network.passes import Pass, Sliding

__all__ = ["generators", "passes", "places", "pool_size", "shapes", "sliding", "slotted", "tuned"]


def places(pairs: Sequence[str]) -> dict[str, str]:
    """Parse ``PART=MEMORY`` pairs."""
    table = {}
    for pair in pairs:
        part, equals, memory = pair.partition("=")
        if not equals:
            raise UsageError(
                f"--place {pair} is not of the form PART=MEMORY", hint="for example --place arena=dtcm"
            )
        table[part] = memory
    return table


def pool_size(text: str | None) -> tuple[int | None, int | None]:
    """Parse ``BYTES[:BLOCKS]``; None for a part that is missing."""
    if text is None:
        return None, None
    size, colon, blocks = text.partition(":")
    hint = "for example --pool 4096, --pool 64K:100"
    if not (blocks or "0").isascii() or not (blocks or "0").isdigit() or (colon and not blocks):
        raise UsageError(f"--pool {text} has no number of blocks after the colon", hint=hint)
    try:
        nbytes = int(size) if size.isascii() and size.isdigit() else parse_size(size)
    except ValueError as error:
        raise UsageError(f"--pool {text} is not a number of bytes: {error}", hint=hint) from None
    return nbytes, int(blocks) if blocks else None


def passes(fold: bool) -> "tuple[Pass, ...]":
    """Return the passes; without ``fold``, constant channels are kept."""
    from crtgen.network.passes import DEFAULT_PASSES, WITHOUT_FOLDING

    return DEFAULT_PASSES if fold else WITHOUT_FOLDING


def sliding(given: tuple[str, str] | None) -> "Sliding | None":
    """Parse ``axis=1 step=2``, in any order."""
    from crtgen.network.passes import Sliding

    if given is None:
        return None
    found = dict(text.partition("=")[::2] for text in given)
    numbers = {key: int(text) for key, text in found.items() if text.isascii() and text.isdigit()}
    if numbers.keys() != {"axis", "step"}:
        hint = "for example --sliding axis=1 step=2"
        raise UsageError(f"--sliding {' '.join(given)} is not of the form axis=N step=N", hint=hint)
    return Sliding(numbers["axis"], numbers["step"])


def slotted(board: Board) -> Board:
    settings = current_settings()
    if settings is None or settings.slots is None:
        return board
    made = replace(board, slots=settings.slots)
    check_board(made, str(settings.path))
    return made


def generators(
    names: list[str] | None, cmsis_nn: Path | None, npu: str = "", driver: str = ""
) -> "tuple[Generator, ...]":
    """Find code generators by name, with their options.

    A path to CMSIS-NN asks for that one too, an NPU for that one first.
    """
    from crtgen.compiler.byoc import CMSIS_NN, ETHOS_U, read_generator

    if driver and not npu:
        raise UsageError("--npu-driver is for --npu", hint="name the NPU: --npu ethos-u55-128")
    chosen = [f"{ETHOS_U}:config={npu}" + f",driver={driver}" * bool(driver)] if npu else []
    chosen += names or []
    if cmsis_nn is not None and CMSIS_NN not in (name.partition(":")[0] for name in chosen):
        chosen.append(CMSIS_NN)
    settings = {CMSIS_NN: {"path": str(cmsis_nn)}} if cmsis_nn is not None else {}
    return tuple(read_generator(name, settings) for name in chosen)


def tuned(file: Path | None) -> "tuple[Tuned, ...]":
    from crtgen.compiler.tuned import read_tuned

    return read_tuned(file) if file else ()


def shapes(given: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """Parse ``INPUT=1,96,96,3``."""
    found: dict[str, tuple[int, ...]] = {}
    for text in given or ():
        name, equals, lengths = text.rpartition("=")
        numbers = lengths.split(",")
        if not (
            equals and name and all(n.isascii() and n.isdigit() and 0 < int(n) < 1 << 26 for n in numbers)
        ):
            raise UsageError(f"{text!r} is not the shape of an input", hint="as in --shape input=1,96,96,3")
        found[name] = tuple(map(int, numbers))
    return found
