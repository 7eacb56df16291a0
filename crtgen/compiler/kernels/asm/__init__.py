"""Functions in assembly, written in Python as data.

A design writes the inner part of a kernel as a ``Function``: its parameters arrive in registers, further
registers are taken by role, each call appends an instruction, and loops know their number of iterations::

    f = Function("scale", "const int8_t *x", "int8_t *y")
    x, y = f.arguments
    vector = f.vector("elements")
    with f.predicated_loop("elements", 8, count):
        f("vldrb.8", vector, f"[{x}], #16")
        f("vmul.i8", vector, vector, vector)
        f("vstrb.8", vector, f"[{y}], #16")
    routine = f.done()

``done`` puts prologue and epilogue around it, for the registers that were taken. The ``Routine`` is data: it
can be compared and hashed, knows the instructions of a call, its bytes of code and of stack, and becomes the
text of a ``.S`` file once code is generated. A ``Kernel`` names its routines. With a template, that is C
which calls them, under the symbols ``routines``. Without one, the only routine is the whole kernel and has
the kernel's parameters.

How a template with assembly in it becomes a routine:

1. What the C passes becomes the parameters; up to four, in r0 to r3. Those that are needed late or seldom are
   ``kept`` on the stack, where the prologue puts them without an instruction more.
2. Each register gets a role. Instructions that want certain ones say so (``among=EVEN`` for sums of VMLADAV).
   ``free`` gives one back; whoever names a register that is not taken gets an error.
3. Jinja's loops become Python's, macros become functions that get ``f`` and registers.
4. Loops: ``loop`` for those that end with a branch of their own, ``counted_loop``, ``low_overhead_loop`` and
   ``predicated_loop`` for the rest; ``rounds`` for some things at once, and those that are left. A number of
   rounds that only the caller knows has a name: ``routine.runs(pairs=8)``.
5. Put ``@cache`` over the function that makes the routine of a view: several candidates ask for the same one.
   A long one is a ``Writer``, of which ``SomeWriter.routine(view)`` is that. The kernel's work counts
   ``routine.runs()``, beside blocks of the C around it.
6. ``python -m pytest tests/compiler/kernels`` compares outputs and instructions with what QEMU counts.
"""

from crtgen.compiler.kernels.asm.fetching import waiting
from crtgen.compiler.kernels.asm.function import CORE, EVEN, FAR, HIGH, LISTED, LOW, NEAR, ODD, Function
from crtgen.compiler.kernels.asm.pipelines import CorePipeline, pipeline_of
from crtgen.compiler.kernels.asm.routine import Routine, Runs, listed
from crtgen.compiler.kernels.asm.schedule import cycles, scheduled
from crtgen.compiler.kernels.asm.text import assembly_file
from crtgen.compiler.kernels.asm.wide import scale_wide
from crtgen.compiler.kernels.asm.writer import Writer

__all__ = [
    "CORE",
    "EVEN",
    "FAR",
    "HIGH",
    "LISTED",
    "LOW",
    "NEAR",
    "ODD",
    "CorePipeline",
    "Function",
    "Routine",
    "Runs",
    "Writer",
    "assembly_file",
    "cycles",
    "listed",
    "pipeline_of",
    "scale_wide",
    "scheduled",
    "waiting",
]
