"""Common parts of layers that use CMSIS-NN: its C structures, a node's names, the code of a call."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from crtgen.compiler.kernels.engine.kernel import Const, InPlace
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import ConvParams

__all__ = [
    "CmsisCode",
    "CmsisConvParams",
    "CmsisDepthwiseParams",
    "CmsisLayer",
    "Four",
    "call",
    "context",
    "declare",
    "dims",
    "has_own_scales",
    "per_channel",
]


class Four(ctypes.Structure):
    """``cmsis_nn_dims``: n, h, w, c."""

    _fields_: ClassVar = [(name, ctypes.c_int32) for name in ("n", "h", "w", "c")]


class CmsisConvParams(ctypes.Structure):
    """``cmsis_nn_conv_params``; tiles are (w, h)."""

    _fields_: ClassVar = [
        (name, ctypes.c_int32)
        for name in ("input_offset", "output_offset", "stride_w", "stride_h", "padding_w", "padding_h",
                     "dilation_w", "dilation_h", "act_min", "act_max")
    ]  # fmt: skip


class CmsisDepthwiseParams(ctypes.Structure):
    _fields_: ClassVar = [
        (name, ctypes.c_int32)
        for name in ("input_offset", "output_offset", "ch_mult", "stride_w", "stride_h", "padding_w",
                     "padding_h", "dilation_w", "dilation_h", "act_min", "act_max")
    ]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class CmsisLayer:
    """A node to generate: ``names`` are its inputs in C, ``extension`` is dsp, mve or empty."""

    op: Any
    sig: Signature
    names: tuple[str, ...]
    extension: str

    @property
    def kind(self) -> str:
        if any(value.dtype is DType.INT4 for value in self.sig.inputs):
            return "s4"
        return "s16" if self.sig.x.dtype is DType.INT16 else "s8"

    def sized(self, function: str) -> str:
        """Return the function that reports the working memory of another function on this core."""
        return f"{function}_get_buffer_size" + (f"_{self.extension}" if self.extension else "")


@dataclass(frozen=True, slots=True, eq=False)
class CmsisCode:
    """Code that calls CMSIS-NN: lines of C, additional constants, bytes of scratch."""

    lines: tuple[str, ...]
    functions: tuple[str, ...]
    consts: tuple[Const, ...] = ()
    buffer: int = 0
    inplace: tuple[InPlace, ...] = ()


def dims(shape: Sequence[int]) -> Four:
    """Return a shape of at most four axes, with leading 1s for missing axes."""
    return Four(*(1,) * (4 - len(shape)), *shape)


def _fields(structure: ctypes.Structure) -> str:
    # The fields in their order, which is C's: braces around the inner structures may be left out.
    return ", ".join(str(getattr(structure, name)) for name, *_ in structure._fields_)


def declare(**four: Four) -> list[str]:
    return [f"static const cmsis_nn_dims {name} = {{{_fields(of)}}};" for name, of in four.items()]


def context(nbytes: int, name: str = "context", start: int = 0) -> str:
    memory = f"(int8_t *)scratch + {start}" if start else "scratch" if nbytes else "NULL"
    return f"const cmsis_nn_context {name} = {{{memory}, {nbytes}}};"


def call(function: str, *arguments: object) -> str:
    return f"(void){function}({', '.join(map(str, arguments))});"


def has_own_scales(params: ConvParams) -> bool:
    pairs = zip(params.multipliers.tolist(), params.shifts.tolist(), strict=True)
    return len(set(pairs)) > 1


def per_channel(params: ConvParams) -> tuple[str, tuple[Const, ...]]:
    consts = (Const.of("multiplier", params.multipliers, 4), Const.of("shift", params.shifts, 4))
    pointers = ", ".join(f"(int32_t *)(uintptr_t){const.name}" for const in consts)
    return f"const cmsis_nn_per_channel_quant_params quant = {{{pointers}}};", consts
