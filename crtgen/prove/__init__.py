"""A proof that a linked image computes its network, for every input.

Nothing here knows the generator: the model is read from its file, the code from the ELF, and of crtgen only the
names of symbols are known (``<model>_compute``, ``_arena``, ``_input_tensors``, ``crt_stack_top`` and so on).

::

    image      the ELF: bytes, names, instructions as text        network   the model file: what layers compute
    machine    runs the instructions on symbols                   meaning   what operations on words are
    recognise  replaces a stored byte by the output that it is    proof     puts it together

See docs/prove.md for what a proof says, and what it does not.
"""

from crtgen.prove.proof import LayerProof, Proof, prove

__all__ = ["LayerProof", "Proof", "prove"]
