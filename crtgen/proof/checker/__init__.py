"""A proof that a linked image computes its network, for every input.

Nothing here knows the generator: the model is read from its file, the code from the ELF. Of crtgen only names
of symbols are known: ``<model>_compute``, ``_arena``, ``_input_tensors``, ``crt_stack_top`` and so on.

::

    image      the ELF: bytes, names, instructions as text
    layout     where it has a model
    machine    runs instructions on symbols           meaning    what operations on words are
    network    the model file: what layers compute    recognise  which output a stored byte is
    decoders   whether others read the code alike     reset      what stands in memory at the call
    core       what the core's registers allow        interrupts what handlers may disturb
    cycles     what instructions take at most
    error      how far numbers of float32 are from the network's
    npu        calls of an NPU, whose layers are trusted
    sliding    the windows of a signal, and what is kept of one for the next
    proof      puts it together

See docs/prove.md for what a proof says, and what it does not.
"""

from crtgen.proof.checker.cycles import UNKNOWN, CoreTiming
from crtgen.proof.checker.error import Error
from crtgen.proof.checker.npu import TrustedCall
from crtgen.proof.checker.proof import LayerProof, Proof, checker_digest, checker_tools, prove
from crtgen.proof.checker.sliding import SlidingWindow

__all__ = [
    "UNKNOWN",
    "CoreTiming",
    "Error",
    "LayerProof",
    "Proof",
    "SlidingWindow",
    "TrustedCall",
    "checker_digest",
    "checker_tools",
    "prove",
]
