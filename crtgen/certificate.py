"""What is made of a proof: worst cases as a C header, and whether an earlier proof still holds."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from crtgen import api, files
from crtgen.boards import Board
from crtgen.prove import UNKNOWN, Proof, Timing, checker_digest, prove

__all__ = ["depth_of", "proof_key", "prove_built", "timing_of", "worst_header"]


def timing_of(board: Board) -> Timing:
    """Of the board's core, with the most wait states that its file says of a memory.

    Nothing is known of a board whose file does not say how its flash is read.
    """
    reads = [board.reads(memory.name) for memory in board.memories]
    if board.reads_are_assumed:
        return UNKNOWN
    return Timing(board.core.name.partition("+")[0], max((r.wait_states for r in reads if r), default=0))


def depth_of(image: api.Image, model: str) -> int | None:
    """The bytes of stack that the call graph and the compiler's frames give the network at most, if known."""
    stack = image.size.stack
    frames = stack.frames if stack is not None and stack.proven else ()
    return next((frame.total for frame in frames if frame.name == f"{model}_compute"), None)


def prove_built(image: api.Image, model: Path, board: Board) -> Proof:
    """The proof of an image that was built for a board."""
    return prove(image.path, model, timing=timing_of(board))


def proof_key(compiled: api.Compiled, model: Path, toolchain: str) -> str:
    """A digest of all that the proof of a standalone image depends on: an equal one has an equal proof."""
    parts = (
        compiled.generate("standalone").project.digest,
        toolchain,
        hashlib.sha256(files.read(model)).hexdigest(),
        checker_digest(),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def worst_header(proof: Proof) -> str:
    """A C header with the worst case of a proven image."""
    name = re.sub(r"\W", "_", proof.model).upper()
    figures = {"INSTRUCTIONS": proof.instructions[1], "STACK": proof.stack}
    if proof.cycles:
        figures["CYCLES"] = proof.cycles
    core, waits = proof.timing.core, proof.timing.waits
    of = f" Cycles are those of {core} with {waits} wait states at every word." if proof.cycles else ""
    return f"""/*
 * The worst case of an inference, {proof.model}_compute, with its bytes of stack.{of}
 * Proven by crtgen prove of the image whose loaded segments have the SHA-256
 * {proof.certificate["image_sha256"]}. Generated: do not edit.
 */
#ifndef {name}_WORST_H
#define {name}_WORST_H

{_defines(name, figures)}
#endif
"""


def _defines(name: str, figures: Mapping[str, int]) -> str:
    return "".join(f"#define {name}_WORST_{what} {value}\n" for what, value in figures.items())
