"""Kernel designs: how an operator is computed on a core.

``select`` chooses a design for each layer; the modules with designs are imported when the first one is
needed.

A design is a function under ``@design(Operator, types=..., needs=..., weights=...)``, which states the
element types, cores and constants that it supports. It gets the operator, its signature and the target, and
returns None for a shape that it does not support or a requantisation that cannot be re-encoded. Otherwise it
returns a ``Kernel``, which is a candidate until it is chosen:

- ``consts``: what the layer's arrays will be, in whatever order and type the code reads them; they are packed
  when the code of the chosen kernel is generated, once;
- ``view`` and ``template``: code for this layer alone, in C or with assembly within C. The template is
  rendered with ``k`` (the view), ``name`` (the symbol), ``prototype`` (the C declaration without semicolon,
  whose parameters are called ``x0 ..., y0 ...``, the consts' names, ``scratch``) and ``parts`` (the symbols
  of functions that it calls). Layers with equal template, view, parameters and parts share one function, also
  those of several models in one image;
- ``scratch``: bytes in the arena while the layer runs; every place in the arena is aligned as the plan says,
  16 bytes unless told otherwise, of which kernels in C rely on 4;
- ``inplace``: what the planner may overlay, by ``window.least_lead``;
- ``cost``: estimated instructions. The cheapest applicable design wins, so a faster one simply takes over.
"""

from typing import TYPE_CHECKING

from crtgen.base.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.compiler.kernels.engine.cost import Cost
    from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Part, Target
    from crtgen.compiler.kernels.engine.pair import on_two_cores
    from crtgen.compiler.kernels.engine.parts import Parts
    from crtgen.compiler.kernels.engine.registry import Design, applicable, design, select
    from crtgen.compiler.kernels.rows.row_loop import Outline, find_outline
    from crtgen.compiler.kernels.rows.row_stage import RowStage, makes_operand, runs_in_loops, takes_rows

__all__ = [
    "Const",
    "Cost",
    "Design",
    "InPlace",
    "Kernel",
    "Outline",
    "Part",
    "Parts",
    "RowStage",
    "Target",
    "applicable",
    "design",
    "find_outline",
    "makes_operand",
    "on_two_cores",
    "runs_in_loops",
    "select",
    "takes_rows",
]

__getattr__ = on_demand(__name__, __file__)
