"""A generator for a made-up accelerator of which a board has several, each with a program of its own."""

from collections.abc import Mapping
from typing import ClassVar, Self

from crtgen.compiler.byoc import Generated, Generator, Pattern, arithmetic
from crtgen.compiler.kernels import Target
from crtgen.compiler.kernels.engine.sources import DeviceContext, SourceLibrary
from crtgen.network.ir import Graph, Op, Signature
from crtgen.network.ops import Add, Mul, Sub

__all__ = ["Accelerator", "accelerators"]

_HEADER = b"""\
#include <stdint.h>

/* An instance: the operator that it was programmed for, and how often it ran. */
struct accelerator {
    uint8_t program;
    uint32_t runs;
};

void accelerator_run(struct accelerator *device, const int16_t *a, const int16_t *b, int16_t *y, uint32_t n);
"""
_SOURCE = b"""\
#include <accelerator.h>

void accelerator_run(struct accelerator *device, const int16_t *a, const int16_t *b, int16_t *y, uint32_t n)
{
    device->runs++;
    for (uint32_t i = 0; i < n; i++) {
        const int result = device->program == '+' ? a[i] + b[i] : a[i] - b[i];
        y[i] = (int16_t)(device->program == '*' ? a[i] * b[i] : result);
    }
}
"""
_LIBRARY = SourceLibrary("accelerator", (("inc/accelerator.h", _HEADER), ("src/run.c", _SOURCE)), ("inc",))


class Accelerator(Generator):
    """Computes one operator of int16, its program; the code that it generates is the same for each."""

    name = "accelerator"
    patterns: ClassVar[tuple[Pattern, ...]] = ((Add,), (Sub,), (Mul,))

    def __init__(self, program: str = "add") -> None:
        self.program = program

    @classmethod
    def create(cls, options: Mapping[str, str]) -> Self:
        return cls(options.get("program", "add"))

    @property
    def symbol(self) -> str:
        return f"accelerator_{self.context.index}"

    @property
    def handle(self) -> str:
        return f"&{self.symbol}"

    def reason(self, op: Op, sig: Signature) -> str:
        if op.name != self.program:
            return f"{self.context} is programmed for {self.program}"
        return arithmetic.reason(op, sig)

    def generate(self, subgraph: Graph, target: Target) -> Generated:
        names = {name: f"x{i}" for i, name in enumerate(subgraph.inputs)}
        a, b = (names[n] for n in subgraph.nodes[0].inputs)
        elements = subgraph.values[subgraph.outputs[0]].elements
        program = arithmetic.SIGNS[self.program]
        return Generated(
            body=f"    accelerator_run(device, {a}, {b}, y0, {elements});",
            support=f"static struct accelerator {self.symbol} = {{.program = '{program}'}};",
            includes=("accelerator.h",),
            libraries=(_LIBRARY,),
        )


def accelerators(*programs: str) -> tuple[Accelerator, ...]:
    """An instance for each program, ``npu0`` on ``npu:0`` and so on."""
    made = []
    for index, program in enumerate(programs):
        generator = Accelerator(program)
        generator.name, generator.context = f"npu{index}", DeviceContext("npu", index)
        made.append(generator)
    return tuple(made)
