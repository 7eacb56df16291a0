"""The signal library, operator by operator."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Op, Signature
from crtgen.network.ops.fft import EIGHTH, Irfft, Rfft, digit_order, half_turns, odd_factors, radices, turns
from crtgen.network.ops.signal import (
    FftAutoScale,
    FilterBank,
    FilterBankLog,
    FilterBankSquareRoot,
    Pcan,
    SpectralSubtraction,
    SpectrumEnergy,
    Window,
    log_table,
)

__all__ = ["FftView", "SignalView", "TransformStage"]


@dataclass(frozen=True, slots=True)
class SignalView:
    """An operator of this library with its attributes, and the numbers of its inputs and outputs.

    ``period`` is the number of weights of a window, ``factor`` the conversion of a weight, as C.
    """

    op: Op
    inputs: int
    outputs: int
    period: int = 0
    factor: str = ""


@dataclass(frozen=True, slots=True)
class TransformStage:
    """``groups`` groups of ``radix`` transforms of ``size`` values, with twiddle factors ``step`` apart."""

    radix: int
    size: int
    groups: int
    step: int
    divisor: int


@dataclass(frozen=True, slots=True)
class FftView:
    """``rows`` of ``inputs`` values; ``count`` complex values are transformed in ``stages``.

    ``type`` is their C type, ``wide`` the type of products, ``bits`` the number of fractional bits, 0 for
    floats. ``sign`` is 1 for the inverse, which has a ``scale`` for floats. ``starts`` are the offsets of the
    twiddle factors of later stages, if these and the final separation are functions in assembly.
    """

    type: str
    wide: str
    bits: int
    sign: int
    scale: str
    rows: int
    inputs: int
    count: int
    stages: tuple[TransformStage, ...]
    starts: tuple[int, ...] = ()

    @property
    def radices(self) -> list[int]:
        return sorted({stage.radix for stage in self.stages[1:]})

    @property
    def eighth(self) -> str:
        return c_float(float(EIGHTH))

    @property
    def odd(self) -> Mapping[int, list[tuple[list[str], list[str]]]]:
        return {radix: [_odd(radix, j + 1) for j in range(radix // 2)] for radix in (3, 5)}


def _odd(radix: int, j: int) -> tuple[list[str], list[str]]:
    cosines, sines = ([c_float(float(n)) for n in factors] for factors in odd_factors(radix, j))
    return cosines, sines


def _kernel(
    template: str,
    op: Op,
    sig: Signature,
    consts: tuple[Const, ...] = (),
    lead: bool = False,
) -> Kernel:
    return Kernel(
        design=template,
        template=f"signal/{template}.c.j2",
        view=SignalView(op, sig.x.elements, sig.y.elements),
        consts=consts,
        inplace=(InPlace(),) if lead else (),
        work=Work().block("input", sig.x.elements).block("output", sig.y.elements),
    )


@design(Window, weights=(1,))
def window(op: Window, sig: Signature, target: Target) -> Kernel:
    weights = Const.of("weights", sig.inputs[1].array())
    kernel = _kernel("window", op, sig, (weights,), lead=True)
    return replace(kernel, view=SignalView(op, sig.x.elements, sig.y.elements, sig.inputs[1].elements))


@design(FftAutoScale)
def auto_scale(op: FftAutoScale, sig: Signature, target: Target) -> Kernel:
    """Find the largest magnitude, then shift all samples."""
    return _kernel("auto_scale", op, sig, lead=True)


@design(SpectrumEnergy)
def energy(op: SpectrumEnergy, sig: Signature, target: Target) -> Kernel:
    """Add two squares for each output; outputs overwrite the inputs from which they are computed."""
    return _kernel("energy", op, sig, lead=True)


@design(FilterBank, weights=(1, 2, 3, 4, 5))
def filter_bank(op: FilterBank, sig: Signature, target: Target) -> Kernel:
    """Read each energy once, for two channels; unsigned weights take one 32-bit product."""
    names = ("weights", "unweights", "frequencies", "starts", "widths")
    consts = tuple(Const.of(n, v.array()) for n, v in zip(names, sig.inputs[1:], strict=True))
    kernel = _kernel("filter_bank", op, sig, consts)
    is_positive = all(int(v.array().min()) >= 0 for v in sig.inputs[1:3])
    factor = "(uint64_t)(uint16_t)" if is_positive else "(uint64_t)"
    return replace(kernel, view=SignalView(op, sig.x.elements, sig.y.elements, factor=factor))


@design(FilterBankSquareRoot)
def square_root(op: FilterBankSquareRoot, sig: Signature, target: Target) -> Kernel:
    """Compute roots bit by bit; with an FPU by its square root, corrected in 64 bits where it may be one
    off.
    """
    fpu = "none" if target.core.arch == "host" else target.core.fpu
    return _kernel(
        {"none": "square_root", "sp": "square_root_float", "dp": "square_root_double"}[fpu], op, sig
    )


@design(SpectralSubtraction)
def spectral_subtraction(op: SpectralSubtraction, sig: Signature, target: Target) -> Kernel:
    """Process channel by channel; the estimate is updated in place."""
    places = (InPlace(input=0, output=0), InPlace(input=1, output=2))
    return replace(_kernel("spectral_subtraction", op, sig), inplace=places)


@design(Pcan, weights=(2,))
def pcan(op: Pcan, sig: Signature, target: Target) -> Kernel:
    return _kernel("pcan", op, sig, (Const.of("gains", sig.inputs[2].array()),), lead=True)


@design(FilterBankLog)
def logarithm(op: FilterBankLog, sig: Signature, target: Target) -> Kernel:
    table = Const.of("table", log_table(), 2, "log2(1 + i / 128) - i / 128, times 2^16")
    return _kernel("logarithm", op, sig, (table,), lead=True)


@design(Rfft)
def rfft(op: Rfft, sig: Signature, target: Target) -> Kernel:
    """Compute stages of radix 4, after a first one of radix 2, 4 or 8, on values in scratch."""
    return _transform(sig, op.length // 2, -1)


@design(Irfft)
def irfft(op: Irfft, sig: Signature, target: Target) -> Kernel:
    """Compute the inverse transform with the same stages, in place in the output."""
    return _transform(sig, op.length // 2, 1)


_WIDE = {DType.INT16: ("int32_t", 15), DType.INT32: ("int64_t", 31), DType.FLOAT32: ("float", 0)}


def _transform(sig: Signature, count: int, sign: int) -> Kernel:
    dtype, rows = sig.x.dtype, sig.x.elements // sig.x.shape[-1]
    stages, size = [], 1
    wide, bits = _WIDE[dtype]
    scale = c_float(1 / (2 * count)) if sign > 0 and not bits else ""
    plain = dtype is DType.FLOAT32 and sign < 0
    for radix in reversed(radices(count, plain)):
        groups = count // (size * radix)
        stages.append(TransformStage(radix, size, groups, groups, ((1 << bits) - 1) // radix))
        size *= radix
    tables = {"twiddles": turns(count, dtype, sign), "halves": half_turns(count, dtype, sign)}
    consts = [Const.of("order", digit_order(count, plain).astype(np.uint16), 2, "of the input's pairs")]
    consts += [Const.of(name, table.ravel(), 4, "real, imaginary") for name, table in tables.items()]
    kind = f"{dtype.value} {'inverse' if sign > 0 else 'forward'}"
    work = Work().block(f"{kind} row", rows).block(f"{kind} number", rows * count)
    return Kernel(
        design="radix 4",
        template="signal/fft_float.c.j2" if plain else "signal/fft.c.j2",
        view=FftView(dtype.c_name, wide, bits, sign, scale, rows, sig.x.shape[-1], count, tuple(stages)),
        consts=tuple(consts),
        scratch=2 * dtype.itemsize * count,
        inplace=(InPlace(),) if rows == 1 else (),
        work=work.block(f"{kind} turn", rows * count * len(stages)),
    )
