"""Evidence about an image: facts read from the image and from the generated sources, as a folder of files.

None of it is a certificate. Each claim says what was examined and what was found.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crtgen import api
from crtgen.api.report import Report, arena_map
from crtgen.base import files
from crtgen.base.errors import ModelError, ToolMissingError, UnsupportedError, UsageError
from crtgen.base.resources import misra_file
from crtgen.base.version import __version__
from crtgen.boards import Board
from crtgen.compiler.plan import Plan
from crtgen.firmware.builder import Toolchain, find_toolchain
from crtgen.lab.html.bill import bill_of_materials
from crtgen.lab.html.page import render_page, stand_in_text
from crtgen.lab.html.parts import environment
from crtgen.lab.html.study import Study
from crtgen.lab.measure.targets import TargetOutcome
from crtgen.proof.certificate import depth_of, prove_built
from crtgen.proof.printed import as_dict, lines_of, worst_header

__all__ = [
    "Claim",
    "claim_of_cases",
    "claims_of_image",
    "claims_of_proof",
    "collect",
    "loops_of_c",
    "render_evidence",
    "write_evidence",
]

_HEAP = re.compile(r"_?_?(malloc|calloc|realloc|free|sbrk|memalign)(_r)?")
_LOOP = re.compile(r"\b(?:for \(([^;]{0,300});([^;]{0,300});([^)]{0,300})\)|(while) \((.{0,300})\))")
# A number, a macro, or a number of elements behind a pointer.
_CONSTANT = re.compile(r"\b\w+ (?:<|<=|>|!=) ((?:\w+ \+ )?\d+|[A-Z][A-Z0-9_]+)$")


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim; ``holds`` is None if it was not checked, and ``found`` then says why."""

    claim: str
    holds: bool | None
    found: str
    file: str

    @property
    def answer(self) -> str:
        return "not checked" if self.holds is None else "yes" if self.holds else "NO"


@dataclass(frozen=True, slots=True)
class LoopEvidence:
    """A loop of the model's code. ``bound`` is its number of iterations, or the condition that ends it."""

    where: str
    text: str
    bound: str
    is_constant: bool


def check_folder(folder: Path) -> None:
    # Raises ``UsageError`` where evidence cannot go: the folder has to be new or empty.
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "evidence goes into a new or empty folder", where=str(folder), hint="name a new folder with -o"
        )


def write_evidence(folder: Path, evidence: Mapping[str, bytes]) -> None:
    # Write the files into a new or empty folder. Raises ``UsageError`` for another one.
    check_folder(folder)
    files.make_directory(folder)
    for name, data in evidence.items():
        files.write(folder / name, data)


def collect(path: Path, study: Study, board: str) -> tuple[tuple[Claim, ...], dict[str, bytes]]:
    """Return the claims about a standalone image for a board of the study, and the files by name.

    The image is built twice, in two folders.
    """
    on = next(on for on in study.boards if on.report.board == board)
    compiled = on.compiled
    generated = compiled.generate("standalone")
    if "baremetal" not in compiled.board.platforms:
        raise UnsupportedError(
            "evidence is about an image on bare metal", where=board, hint="name another --board"
        )
    images = [generated.build() for _ in range(2)]
    toolchain = find_toolchain(images[0].built.manifest.toolchain)
    digests = [hashlib.sha256(image.path.read_bytes()).hexdigest() for image in images]
    (plan,) = compiled.plans
    loops = (*loops_of_c(compiled), *_loops_of_assembly(plan))
    made = {
        "report.html": render_page(study).encode(),
        "report.json": _json(study.to_dict()),
        "stack.json": _json(images[0].size.stack.to_dict() if images[0].size.stack else None),
        "symbols.json": _json([asdict(symbol) for symbol in images[0].size.sizes.symbols]),
        "loops.json": _json([asdict(loop) for loop in loops]),
        "arena.txt": arena_map(compiled.reports[0]).encode(),
        "graph.txt": str(plan.graph).encode(),
        "rewrites.json": _json(
            {"rewrites": list(map(str, study.rewrites)), "folded": [h.to_dict() for h in study.folded]}
        ),
        "misra.md": misra_file().read_bytes(),
        "sbom.cdx.json": bill_of_materials(path, images[0].path, toolchain, _libraries(images[0])).encode(),
    }
    proof_files, proof_claims = claims_of_proof(images[0], path, compiled.board)
    made |= proof_files
    claims = (
        *claims_of_image(images[0]),
        *proof_claims,
        *_claims_of_code(loops, digests, compiled),
        claim_of_cases(on.verified),
    )
    facts = _facts(path, generated, toolchain)
    made["evidence.json"] = _json({"claims": [asdict(c) for c in claims], "facts": dict(facts)})
    made["index.html"] = render_evidence(on.report, claims, facts).encode()
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(made.items()))
    return claims, {**made, "SHA256SUMS": sums.encode()}


def render_evidence(report: Report, claims: Sequence[Claim], facts: Sequence[tuple[str, str]]) -> str:
    # Return the page of claims about the image of ``report``; ``facts`` are names and values.
    template = environment().get_template("report/evidence.html.j2")
    named = {"model": report.model, "board": report.board, "optimize": report.optimize}
    return template.render(claims=claims, facts=facts, **named)


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()


def _facts(path: Path, generated: api.GeneratedProject, toolchain: Toolchain) -> tuple[tuple[str, str], ...]:
    return (
        ("model", f"{path.name}, SHA-256 {hashlib.sha256(files.read(path)).hexdigest()}"),
        ("project", f"SHA-256 {generated.project.digest}"),
        ("crtgen", __version__),
        ("compiler", toolchain.version),
        (
            "licences",
            "crtgen's runtime: Apache-2.0; what was generated: yours; newlib: BSD;"
            " libgcc: GPL with its exception",
        ),
    )


def claims_of_image(image: api.Image) -> Iterator[Claim]:
    sizes, stack = image.size.sizes, image.size.stack
    heap = sorted({s.name for s in sizes.symbols if _HEAP.fullmatch(s.name)})
    yield Claim(
        "No heap is used", not heap, ", ".join(heap) or "no function of a heap is linked", "symbols.json"
    )
    libc = sorted({s.name for s in sizes.symbols if s.group == "libc" and s.section == "text"})
    yield Claim(
        "Of the C library only these functions are linked", True, ", ".join(libc) or "none", "symbols.json"
    )
    if stack is None:
        return
    cycles = "; ".join(" -> ".join(cycle) for cycle in stack.recursion)
    yield Claim(
        "No function calls itself, directly or not",
        not stack.recursion,
        cycles or "no cycle of calls",
        "stack.json",
    )
    chain = " -> ".join(frame.name for frame in stack.path)
    found = f"{stack.worst:,} bytes, of {sizes.stack:,} reserved, by {chain}"
    yield Claim(
        "The stack has a bound, which is reserved",
        stack.proven and stack.worst <= sizes.stack,
        found,
        "stack.json",
    )


def claims_of_proof(
    image: api.Image, model: Path, board: Board
) -> tuple[dict[str, bytes], tuple[Claim, ...]]:
    # The proof from the machine code, as files, and what it claims.
    what = "Each output of the image is the network's, for every input"
    try:
        proof = prove_built(image, model, board)
    except (ModelError, ToolMissingError) as error:  # zig alone has no objdump
        found = Claim(what, None, str(error), "proof.json")
        return {"proof.json": _json({"refused": str(error)})}, (found,)
    made = {"proof.json": _json(as_dict(proof))}
    if proof.trusted:
        what += ", if the NPU is as crtgen's model of it"
    if proof.is_proven:
        made[f"{proof.model}_worst.h"] = worst_header(proof).encode()
    *said, verdict = lines_of(proof)
    depth = depth_of(image, proof.model)
    within = depth is not None and proof.stack <= depth
    return made, (
        Claim(what, proof.holds, verdict, "proof.json"),
        Claim("Its loads, stores and calls are safe", not proof.stopped, "\n".join(said), "proof.json"),
        Claim(
            "The stack that the proof sees is within the call graph's",
            within and not proof.stopped,
            f"{proof.stack:,} of {depth or 0:,} bytes",
            "proof.json",
        ),
    )


def _claims_of_code(
    loops: Sequence[LoopEvidence], digests: Sequence[str], compiled: api.Compiled
) -> Iterator[Claim]:
    (report,) = compiled.reports
    open_ended = [loop for loop in loops if not loop.is_constant]
    found = f"{len(loops)} loops" + "".join(f"; {loop.where}: {loop.text}" for loop in open_ended)
    yield Claim("Each loop of the model has a constant bound", not open_ended, found, "loops.json")
    same = digests[0] == digests[1]
    yield Claim(
        "Two builds give the same bytes",
        same,
        "SHA-256 " + " and ".join(dict.fromkeys(digests)),
        "SHA256SUMS",
    )
    bound = (
        f"{report.arena_bytes:,} bytes; no layout of this order needs less than {report.arena_lower_bound:,}"
    )
    yield Claim("The arena is the least possible", report.arena_optimal, bound, "arena.txt")


def claim_of_cases(outcome: TargetOutcome) -> Claim:
    what = "Outputs are those that are expected"
    if outcome.error is not None:
        return Claim(what, False, str(outcome.error), "report.json")
    if outcome.skipped:
        return Claim(what, None, outcome.skipped, "report.json")
    count = len(outcome.verdicts)
    found = f"{count - outcome.failed} of {count} cases{stand_in_text(outcome)}"
    return Claim(what, not outcome.failed, found, "report.json")


def loops_of_c(compiled: api.Compiled) -> Iterator[LoopEvidence]:
    (module,) = compiled.modules
    for name in module.files:
        if not name.endswith(("_kernels.c", f"{module.info.name}.c")):
            continue
        for number, line in enumerate(module.files[name].splitlines(), 1):
            for match in _LOOP.finditer(line):
                ends = (match[2] if match[4] is None else match[5]).strip()
                constant = _CONSTANT.search(ends)
                yield LoopEvidence(
                    f"{name}:{number}",
                    line.strip(" {"),
                    constant[1] if constant else ends,
                    constant is not None,
                )


def _loops_of_assembly(plan: Plan) -> Iterator[LoopEvidence]:
    # Loops of functions in assembly, with the rounds that each layer runs them.
    for step in plan.all_steps():
        for call in step.kernel.work.assembly.calls:
            for name, rounds in call.rounds.items():
                text = f"{call.routine.name}, called {call.times:g} times: the loop {name}"
                yield LoopEvidence(step.name, text, f"{rounds:g}", True)


def _libraries(image: api.Image) -> set[str]:
    files_of = {symbol.file for symbol in image.size.sizes.symbols if symbol.group == "libc"}
    return {
        name for name in ("libc", "libgcc") if any(re.search(rf"{name}\w*\.a", file) for file in files_of)
    }
