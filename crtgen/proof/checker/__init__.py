"""A proof that a linked image computes its network, for every input.

Nothing here knows the generator: the model is read from its file, the code from the ELF. Of crtgen only names
of symbols are known: ``<model>_compute``, ``_arena``, ``_input_tensors``, ``crt_stack_top`` and so on.

::

    proof         runs the network's function on symbols, and puts the verdict together
    rows, samples calls of ``<model>_push``: rows of an image, samples of a pipeline
    surroundings  the way from reset, interrupts, applications, an NPU
    recognition   which output a stored word is
    core          runs instructions on symbols
    network       the model file: what layers compute
    binary        the ELF: bytes, names, instructions as text
    algebra       words as expressions of symbols

Each imports only those below it (the contract "proof: the checker's rooms"); ``core`` and ``network`` do not
know each other.

See docs/prove.md for what a proof says, and what it does not.
"""

from crtgen.proof.checker.core.cycles import UNKNOWN, CoreTiming
from crtgen.proof.checker.proof import prove, prove_windows
from crtgen.proof.checker.pushes import SampleStream
from crtgen.proof.checker.recognition.error import Error
from crtgen.proof.checker.samples import WindowsProof
from crtgen.proof.checker.surroundings.calls import ApplicationCall
from crtgen.proof.checker.surroundings.conversions import Conversions
from crtgen.proof.checker.surroundings.npu import TrustedCall
from crtgen.proof.checker.surroundings.sliding import SlidingWindow
from crtgen.proof.checker.tools import checker_digest, checker_tools
from crtgen.proof.checker.verdict import LayerProof, Proof

__all__ = [
    "UNKNOWN",
    "ApplicationCall",
    "Conversions",
    "CoreTiming",
    "Error",
    "LayerProof",
    "Proof",
    "SampleStream",
    "SlidingWindow",
    "TrustedCall",
    "WindowsProof",
    "checker_digest",
    "checker_tools",
    "prove",
    "prove_windows",
]
