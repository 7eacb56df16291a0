"""Proofs of built images, and the key by which a proof is kept while nothing changes that it depends on."""

import hashlib
import json
import zlib
from pathlib import Path

from crtgen import api
from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.boards import Board
from crtgen.network.passes import Sliding
from crtgen.proof.checker import (
    UNKNOWN,
    CoreTiming,
    Proof,
    SlidingWindow,
    checker_digest,
    checker_tools,
    prove,
)

__all__ = ["certificate_of", "depth_of", "own_proof", "proof_key", "prove_built", "timing_of", "window_of"]


def timing_of(board: Board) -> CoreTiming:
    """Return the timing of the board's core, with the most wait states of any memory in its file.

    The timing is unknown if the board's file does not describe how its flash is read.
    """
    reads = [board.reads(memory.name) for memory in board.memories]
    if board.reads_are_assumed:
        return UNKNOWN
    return CoreTiming(board.core.family, max((r.wait_states for r in reads if r), default=0))


def depth_of(image: api.Image, model: str) -> int | None:
    """Return the bytes of stack that the call graph and the compiler's frames give the network at most, if
    known.
    """
    stack = image.size.stack
    frames = stack.frames if stack is not None and stack.proven else ()
    return next((frame.total for frame in frames if frame.name == f"{model}_compute"), None)


def certificate_of(proof: Proof) -> bytes:
    """Return the file by which ``python -m crtproof`` follows a proof: which instruction stores which output.

    Raises ``UsageError`` for a network with states, or on an NPU, which that program does not follow.
    """
    if proof.runs != 1 or proof.network.states or proof.trusted:
        raise UsageError(
            "certificates are only for networks without states that run on the core alone",
            hint="leave out --certificate",
        )
    said = {
        "format": "crtproof 1",
        "model": proof.model,
        **{key: proof.certificate[key] for key in ("image_sha256", "model_sha256")},
        "stores": proof.stores,
    }
    return zlib.compress(json.dumps(said, separators=(",", ":")).encode())


def window_of(sliding: Sliding | None) -> SlidingWindow | None:
    return None if sliding is None else SlidingWindow(sliding.axis, sliding.step)


def prove_built(image: api.Image, model: Path, board: Board, sliding: Sliding | None = None) -> Proof:
    return prove(image.path, model, timing=timing_of(board), window=window_of(sliding))


def proof_key(image: api.Image, model: Path, sliding: Sliding | None) -> str:
    """Return a digest of what a proof is of, and of the checker: the image's file, the model's, the
    windows.
    """
    parts = (
        hashlib.sha256(files.read(image.path)).hexdigest(),
        hashlib.sha256(files.read(model)).hexdigest(),
        repr(window_of(sliding)),
        checker_digest(),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def own_proof(key: str) -> str:
    """Return the entry under which this computer keeps a proof: its key, and the versions that the checker
    used.
    """
    tools = "\n".join(f"{name}: {tool}" for name, tool in sorted(checker_tools().items()))
    return f"proof {key} {hashlib.sha256(tools.encode()).hexdigest()}"
