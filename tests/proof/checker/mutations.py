"""Images with one thing changed: a bit of what is linked, or a constant, a register, an order in sources."""

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crtgen import api
from crtgen.base.errors import BuildError, CrtgenError
from crtgen.boards import find_board
from crtgen.proof.checker import UNKNOWN, proof, prove
from crtgen.proof.checker.binary.image import DecodedImage, read_image
from crtgen.proof.checker.core.layout import only_model
from crtgen.proof.checker.run import ProofRun
from crtgen.proof.checker.surroundings.reset import Needs, start_up
from crtgen.proof.refute import refute

__all__ = ["Outcome", "flipped", "lines_of", "outcomes"]

_MOST_ATTEMPTS = 20


@dataclass
class Outcome:
    """What became of changed images. Accepted ones are run over inputs: ``wrong`` are those that differ."""

    tried: int = 0
    rejected: int = 0
    shown: int = 0
    """Of the rejected ones, those for which an input was found."""
    neutral: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, changed: Path, model: Path, board: str, what: str) -> None:
        """Prove an image, and look for an input that shows a difference."""
        try:
            found = prove(changed, model)
        except CrtgenError:  # a flip may make it a file that is none
            self.tried, self.rejected = self.tried + 1, self.rejected + 1
            return
        self.tried += 1
        refutation = refute(found, changed, find_board(board))
        shown = refutation.inputs != ()
        if not found.is_proven:
            self.rejected, self.shown = self.rejected + 1, self.shown + shown
        elif refutation.tried or shown:
            (self.wrong if shown else self.neutral).append(what)
        else:  # it does not come to the network: it waits for a device that never answers, or has a fault
            waits = refutation.reason.endswith("timed out")
            (self.neutral if waits else self.wrong).append(f"{what}: {refutation.reason}")


def flipped(path: Path, address: int, bit: int, directory: Path) -> Path:
    """The image with one bit of what it loads changed."""
    data = bytearray(path.read_bytes())
    with path.open("rb") as file:
        segments = [(s["p_vaddr"], s["p_offset"], s["p_filesz"]) for s in ELFFile(file).iter_segments()]
    first, offset, _ = next(s for s in segments if s[0] <= address < s[0] + s[2])
    data[offset + address - first] ^= 1 << bit
    changed = directory / "changed.elf"
    changed.write_bytes(data)
    return changed


def outcomes(model: Path, board: str, flips: int, changes: int, seed: int, directory: Path) -> Outcome:
    """Flips go round the places of ``_places``; changes are in generated C and assembly."""
    generated = api.load(model).compile(board).generate("standalone")
    image = directory / "firmware.elf"
    built = generated.build()
    image.write_bytes(built.path.read_bytes())
    numbers, outcome = random.Random(seed), Outcome()
    places, count = _places(image, model)
    with pytest.MonkeyPatch.context() as patch:  # a loop without an end is one soon
        patch.setattr("crtgen.proof.checker.run._MOST_INSTRUCTIONS", 4 * count)
        for i in range(flips):
            address, bit = numbers.choice(places[i % len(places)]), numbers.randrange(8)
            changed = flipped(image, address, bit, directory)
            outcome.add(changed, model, board, f"bit {bit} of {_name(image, changed, address)}")
        for _ in range(changes):
            what, changed = _built(generated, numbers, directory)
            outcome.add(changed, model, board, what)
    return outcome


def _places(image: Path, model: Path) -> tuple[list[list[int]], int]:
    """Addresses of loaded bytes by kind, and how many instructions a run of the network has.

    The kinds: the network's code, its constants, the way from reset to it, the vector table, the description
    of the tensors, and all else: literals, values of variables, other functions and their texts.
    """
    read = read_image(image)
    run = ProofRun(read, proof._network(model), only_model(read, model.stem), UNKNOWN)
    found = run.proof(0.0)
    assert found.is_computed
    constants = [read.span(n) for n in read.symbols if "__tvm_param__" in n and read.sizes[n]]
    described = [read.span(f"{model.stem}_{which}_tensors") for which in ("input", "output")]
    kinds = [
        _bytes_of(read, run.machine.code),
        [a for span in constants for a in range(*span)],
        _bytes_of(read, start_up(read, model.stem, Needs(found.stack))[1]),
        list(range(*read.span("crt_vectors"))),
        [a for span in described for a in range(*span)],
    ]
    with image.open("rb") as file:
        loaded = [(s["p_vaddr"], s["p_filesz"]) for s in ELFFile(file).iter_segments("PT_LOAD")]
    named = {a for kind in kinds for a in kind}
    rest = [a for first, size in loaded for a in range(first, first + size) if a not in named]
    return [kind for kind in (*kinds, rest) if kind], run.machine.count


def _bytes_of(image: DecodedImage, code: Iterable[int]) -> list[int]:
    return [a for i in sorted(code) for a in range(i, image.instructions[i].following)]


def _name(image: Path, changed: Path, address: int) -> str:
    """The instruction or the symbol at an address, before and after."""
    before, after = read_image(image), read_image(changed)
    for a in range(address, address - 4, -1):
        if a in before.instructions and before.instructions[a].following > address:
            new = after.instructions.get(a)
            text = f"{before.instructions[a].text!r} -> {new.text if new else 'nothing'!r}"
            return f"{address:#x} in {before.function_of(address)}: {text}"
    at, owner = max((v, n) for n, v in before.symbols.items() if v <= address)
    return f"{address:#x}, {owner} + {address - at}"


def _built(generated: api.GeneratedProject, numbers: random.Random, directory: Path) -> tuple[str, Path]:
    """A change that still builds."""
    for _ in range(_MOST_ATTEMPTS):
        what, sources = _changed_sources(generated.project.sources, numbers)
        try:
            built = replace(generated, project=replace(generated.project, sources=sources)).build()
        except BuildError:
            continue
        changed = directory / "changed.elf"
        changed.write_bytes(built.path.read_bytes())
        return what, changed
    raise AssertionError("no change builds")


_STATEMENT = {
    ".S": re.compile(r"    [a-z][\w.]*\s+[\w{\[].*"),
    ".c": re.compile(r"\s{4,}\w.*;"),
    "ld": re.compile(r"\s{2,}\S.*"),
}
_CHANGED = re.compile(r".*_kernels\.[cS]|platform/(startup|main)\.c|model/[a-z]+\.c|.*\.ld")
_NUMBER = re.compile(r"(?<![\w.])(?:0x)?(\d+)(?![\w.])")
_REGISTER = re.compile(r"\b[rq](\d+)\b")


def _changed_sources(sources: Mapping[str, bytes], numbers: random.Random) -> tuple[str, dict[str, bytes]]:
    """One constant, register or pair of statements of kernels, calls, start-up code or linker script."""
    name = numbers.choice([n for n in sources if _CHANGED.fullmatch(n)])
    lines, statement = sources[name].decode().split("\n"), _STATEMENT[name[-2:]]
    plain = [i for i, line in enumerate(lines) if statement.fullmatch(line)]
    while True:
        i = numbers.choice(plain)
        old = lines[i : i + 2]
        new = _changed(old, statement.fullmatch(old[-1]) is not None, numbers)
        if new != old:
            break
    said = (" / ".join(line.strip() for line in pair) for pair in (old, new))
    what = f"{name}:{i + 1}: {' -> '.join(said)}"
    return what, {**sources, name: "\n".join([*lines[:i], *new, *lines[i + 2 :]]).encode()}


def _changed(lines: list[str], both: bool, numbers: random.Random) -> list[str]:
    first, *second = lines
    kind = numbers.choice(("constant", "register", "order"))
    if kind == "order":
        return [*second, first] if both else lines
    matches = list((_NUMBER if kind == "constant" else _REGISTER).finditer(first))
    if not matches:
        return lines
    m = numbers.choice(matches)
    n = int(m[1])
    new = numbers.choice([v for v in (n + 1, n - 1, n ^ 4) if v >= 0])
    return [f"{first[: m.start(1)]}{new}{first[m.end(1) :]}", *second]


def lines_of(outcome: Outcome) -> Iterator[str]:
    """For people."""
    yield f"{outcome.tried} changed: {outcome.rejected} rejected, {outcome.shown} of these shown by an input"
    yield from (f"neutral: {what}" for what in outcome.neutral)
    yield from (f"WRONG: {what}" for what in outcome.wrong)
