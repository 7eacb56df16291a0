"""Searches for an input for which an unproven image differs from its network.

It is not part of the checker, and no proof depends on it.

::

numbers         the network on numbers, and the direction in which inputs push inner values
    inputs          inputs that are worth trying
    qemu            runs the image's function on them, from its own reset
    counterexample  compares
"""

from crtgen.proof.refute.counterexample import Refutation, refute

__all__ = ["Refutation", "refute"]
