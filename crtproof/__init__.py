"""A second checker of what `crtgen prove` says: small, on its own, with the standard library alone.

``crtgen prove --certificate kws.proof`` says which store of which instruction writes which output of which
layer. Nothing in it is believed: it only tells where to look. This program decodes the image by itself, runs
the code on symbols by itself, reads the network by itself, and compares each of those stores with the
network, for every value of the sum that it depends on::

    elf        the image: segments, symbols          model      the network's file
    decoder    bits of an instruction                layers     what layers compute
    core       registers, flags, conditions          memory     constants, arena and stack
    machine    what instructions do (on products,    compare    a stored word with a layer's output
               arithmetic and core)                  rows       the same for softmax, and powers
    ways       branches that depend on inputs        check      puts it together
    values     words that depend on inputs           words      forms of them

It shares no line with crtgen, and no idea where another would do: sums are compared by one number instead of
by their coefficients, functions on intervals instead of by their course, and instructions are decoded from
their bits instead of from a disassembler's text. So a fault in one checker is unlikely to be in the other.

It follows int8 networks on Armv7-M and Armv8-M cores, without Helium and without floats. What it does not
follow it refuses. See docs/soundness.md for what is said, and for what it leaves to `crtgen prove`: the way
from reset, interrupts, time, and stack pointers other than the one that it tries.
"""

__version__ = "0.1.0"
