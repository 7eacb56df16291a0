"""Transposed convolutions, which front ends have converted to convolutions and moves of pixels.

CMSIS-NN needs the original weights and padding, which are reconstructed here.
"""

import ctypes
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.compiler.byoc.cmsis_nn.layer import CmsisCode, call, context, declare, dims
from crtgen.compiler.byoc.cmsis_nn.sources import CmsisSources
from crtgen.compiler.kernels.engine.kernel import Const
from crtgen.compiler.kernels.engine.parts import aligned
from crtgen.network.ir import Array, DType, Graph, Value
from crtgen.network.ops import Conv2d, ConvParams, Reshape, StridedSlice, Transpose

__all__ = ["BLOCKS", "PATTERNS", "Transposed", "find_transposed", "transposed"]

PATTERNS = (
    (Conv2d, Reshape, Transpose, Reshape, StridedSlice),
    (Conv2d, Reshape, Transpose, Reshape),
)
BLOCKS = (0, 1, 3, 2, 4, 5)
"""Mapping from the pixels of blocks to rows and columns."""
_FUNCTION = "arm_transpose_conv_wrapper_s8"
_SIZE = "arm_transpose_conv_s8_get_buffer_size"
_REVERSED_SIZE = "arm_transpose_conv_s8_get_reverse_conv_buffer_size"


class _Params(ctypes.Structure):
    """``cmsis_nn_transpose_conv_params``; tiles are (w, h)."""

    _fields_: ClassVar = [
        (name, ctypes.c_int32)
        for name in ("input_offset", "output_offset", "stride_w", "stride_h", "padding_w", "padding_h",
                     "padding_offset_w", "padding_offset_h", "dilation_w", "dilation_h", "act_min", "act_max")
    ]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Transposed:
    """A transposed convolution of ``x`` to ``y`` with ``weights[O, rows, columns, I]``.

    ``padding`` is (top, left): the rows and columns that are dropped at the start of the output.
    """

    x: Value
    y: Value
    weights: Array
    bias: Array
    params: ConvParams
    stride: tuple[int, int]
    padding: tuple[int, int]


def find_transposed(subgraph: Graph) -> Transposed | None:
    kinds = tuple(type(node.op) for node in subgraph.nodes)
    if kinds not in PATTERNS:
        return None
    sig, y = subgraph.signature(subgraph.nodes[0]), subgraph.signature(subgraph.nodes[-1]).y
    op, _, move = (node.op for node in subgraph.nodes[:3])
    assert isinstance(op, Conv2d)
    assert isinstance(move, Transpose)
    shape = subgraph.signature(subgraph.nodes[1]).y.shape
    blocks = move.perm == BLOCKS and len(shape) == len(BLOCKS)
    if sig.x.dtype is not DType.INT8 or not blocks or op.stride != (1, 1):
        return None
    corner, stride = (0, 0), (shape[3], shape[4])
    last = subgraph.nodes[-1].op
    if isinstance(last, StridedSlice):
        if last.stride != (1,) * 4 or last.begin[0] or last.begin[3]:
            return None
        corner = last.begin[1], last.begin[2]
    weights = _restored(sig.inputs[1].array(), stride, shape[5])
    rows = sig.inputs[1].shape[1] - 1 - op.padding.top
    columns = sig.inputs[1].shape[2] - 1 - op.padding.left
    padding = corner[0] + rows * stride[0], corner[1] + columns * stride[1]
    bias = sig.inputs[2].array()[: shape[5]]
    return Transposed(sig.x, y, weights, bias, op.parameters(sig), stride, padding)


def _restored(blocks: Array, stride: tuple[int, int], outputs: int) -> Array:
    # The weights before they were cut into blocks, without rows and columns of zeros at their end.
    _, rows, columns, depth = blocks.shape
    parts = blocks.reshape(*stride, outputs, rows, columns, depth).transpose(2, 3, 0, 4, 1, 5)
    whole = parts[:, ::-1, :, ::-1].reshape(outputs, rows * stride[0], columns * stride[1], depth)
    ends = [int(np.nonzero(whole.any(axis=axes))[0].max(initial=0)) + 1 for axes in ((0, 2, 3), (0, 1, 3))]
    return np.ascontiguousarray(whole[:, : ends[0], : ends[1]])


def transposed(made: Transposed, sources: CmsisSources, extension: str) -> CmsisCode:
    p, outputs = made.params, len(made.bias)
    tiles = (*reversed(made.stride), *reversed(made.padding), 0, 0, 1, 1)
    params = _Params(p.input_offset, p.output_offset, *tiles, p.act_min, p.act_max)
    x, w, y = (dims(shape) for shape in (made.x.shape, made.weights.shape, made.y.shape))
    sums = sources.size(f"{_SIZE}_mve" if extension == "mve" else _SIZE, params, x, w, y)
    filters = sources.size(_REVERSED_SIZE, params, x, w)
    start = aligned(sums)
    consts = (
        Const.of("filters", made.weights, 4),
        Const.of("starts", made.bias, 4),
        Const.of("multiplier", p.multipliers[:outputs], 4),
        Const.of("shift", p.shifts[:outputs], 4),
    )
    fields = ", ".join(str(getattr(params, name)) for name, *_ in params._fields_)
    pointers = ", ".join(f"(int32_t *)(uintptr_t){name}" for name in ("multiplier", "shift"))
    lines = (
        f"static const cmsis_nn_transpose_conv_params params = {{{fields}}};",
        *declare(input=x, filter=w, biases=dims((outputs,)), output=y),
        f"const cmsis_nn_per_channel_quant_params quant = {{{pointers}}};",
        context(sums),
        context(filters, "reversed", start),
        call(_FUNCTION, "&context", "&reversed", "&params", "&quant", "&input", "x0", "&filter", "filters",
             "&biases", "starts", "&output", "y0"),
    )  # fmt: skip
    return CmsisCode(lines, (_FUNCTION,), consts, start + filters)
