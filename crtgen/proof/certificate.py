"""Proofs of built images, and the cache key under which a proof stays valid until something it depends on
changes.
"""

import hashlib
import json
import zlib
from pathlib import Path

from crtgen import api
from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.boards import Board
from crtgen.network.passes import Sliding
from crtgen.network.pipeline import JoinedPipeline
from crtgen.proof.checker import (
    UNKNOWN,
    CoreTiming,
    Proof,
    SampleStream,
    SlidingWindow,
    checker_digest,
    checker_tools,
    prove,
)

__all__ = [
    "certificate_of",
    "depth_of",
    "own_proof",
    "proof_key",
    "prove_built",
    "stream_of",
    "timing_of",
    "window_of",
]


def timing_of(board: Board) -> CoreTiming:
    """Return the cycle timing of the board's core, with the wait states of the slowest memory in its board
    file.

    The timing is unknown if the board's file does not describe how its flash is read.
    """
    reads = [board.reads(memory.name) for memory in board.memories]
    if board.reads_are_assumed:
        return UNKNOWN
    return CoreTiming(board.core.family, max((r.wait_states for r in reads if r), default=0))


def depth_of(image: api.Image, model: str) -> int | None:
    """Return an upper bound of the network's stack in bytes, from the call graph and the compiler's frame
    sizes; None if unknown.
    """
    stack = image.size.stack
    frames = stack.frames if stack is not None and stack.proven else ()
    return next((frame.total for frame in frames if frame.name == f"{model}_compute"), None)


def certificate_of(proof: Proof) -> bytes:
    """Return the certificate that ``python -m crtproof`` replays: which instruction stores which output.

    Raises ``UsageError`` for a network with states or on an NPU, which ``crtproof`` does not support.
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


def stream_of(name: str, pipeline: JoinedPipeline) -> SampleStream:
    """Return how a pipeline's signal is cut into windows, and the bytes of its structs."""
    samples, decision, graph = pipeline.samples, pipeline.decision, pipeline.graph
    outputs = [graph.values[name] for name in graph.outputs]
    event = 12  # the sample's number, and a pointer to a row
    if decision is not None and decision.boxes is not None:
        event = 20 + 24 * decision.boxes.most
    elif decision is not None:
        varies = bool(decision.least) and decision.least < decision.average
        event = 16 + 4 * varies + (8 * decision.top if decision.top > 1 else 0)
    return SampleStream(
        name,
        span=pipeline.span,
        hop=pipeline.hop,
        before=pipeline.before,
        skip=pipeline.skip,
        size=samples.elements // pipeline.span * samples.dtype.itemsize,
        event=-(-event // 8) * 8,
        reports=decision is None and not pipeline.warm,
        outputs=tuple((y.elements, 8 * y.dtype.itemsize) for y in outputs),
    )


def prove_built(image: api.Image, model: Path, board: Board, sliding: Sliding | None = None) -> Proof:
    return prove(image.path, model, timing=timing_of(board), window=window_of(sliding))


def proof_key(image: api.Image, model: Path, sliding: Sliding | None) -> str:
    """Return a digest of everything that a proof covers (image, model, windows) and of the checker."""
    parts = (
        hashlib.sha256(files.read(image.path)).hexdigest(),
        hashlib.sha256(files.read(model)).hexdigest(),
        repr(window_of(sliding)),
        checker_digest(),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def own_proof(key: str) -> str:
    """Return this computer's cache entry for a proof: its key and the versions of the tools that the checker
    ran on.
    """
    tools = "\n".join(f"{name}: {tool}" for name, tool in sorted(checker_tools().items()))
    return f"proof {key} {hashlib.sha256(tools.encode()).hexdigest()}"
