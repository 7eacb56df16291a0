"""Looks for an input for which an image that is not proven gives something else than its network.

It stands outside of the checker, and nothing that is proven rests on it.

::

    numbers         the network on numbers, and which way inputs push what is inside
    inputs          which inputs are worth trying
    qemu            runs the image's function on them, from its own reset
    counterexample  compares
"""

from crtgen.proof.refute.counterexample import Refutation, refute

__all__ = ["Refutation", "refute"]
