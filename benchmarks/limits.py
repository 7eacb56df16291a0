"""What the instructions of a network are for: ``python -m benchmarks.limits MODEL...``.

At ``speed``, for a core with the DSP extension and one with Helium, in thousands. Assembly is data, so each
instruction is known and how often it runs; of C a number is known, and is with the rest. The last column is
what is left where nothing but the sums and their outputs costs anything: products, loads and widening of the
inner loops as they are, and for each output the fewest instructions that requantise and store it.
"""

import sys
from collections import Counter
from pathlib import Path

import crtgen
from crtgen.kernels.kernel import Kernel
from crtgen.ops import Add, AveragePool2d
from crtgen.plan import Plan

BOARDS = ("mps2_an386", "mps3_an547")
KINDS = {
    "products": ("smlad", "smlald", "vmladav", "vmlaldav"),
    "loads": ("ldr", "ldm", "vldr"),
    "widening": ("sxtb16", "sxtab16", "uxtab16"),
}
"""Beginnings of mnemonics."""
OUTPUT = {"dsp": 3.5, "mve": 2.0}
"""Instructions of an output: with the DSP extension a multiplication with addition, a shift that saturates, a
store, and half a subtraction of a pair's gain; with Helium, four in a vector, four moves of sums for eight,
and four more for each vector."""
