"""TFLite Micro's signal library, from samples to features."""

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from crtgen.network.frontends.builder import Converted, KeptState
from crtgen.network.frontends.tflite_convert.layer import TfliteConverter, TfliteLayer, pairs, same
from crtgen.network.ir import DType, Op, shape_text
from crtgen.network.ops import signal, stream
from crtgen.network.ops.fft import Irfft, Rfft
from crtgen.network.ops.shape import Identity

__all__ = ["CONVERTERS"]

_I16, _U32, _U64 = DType.INT16, DType.UINT32, DType.UINT64
_MOST_KEPT = 1 << 26  # more samples than any board holds
_TRANSFORMED = same(DType.FLOAT32, DType.INT16, DType.INT32)


def _whole(make: Callable[[TfliteLayer], Op]) -> Callable[[TfliteLayer], Converted]:
    # An operator of all its inputs, whose attributes are the numbers of its options.
    return lambda layer: Converted(make(layer), layer.operands)


def _spectral_subtraction(layer: TfliteLayer) -> Converted:
    op = signal.SpectralSubtraction(
        smoothing=layer.number("smoothing"),
        one_minus_smoothing=layer.number("one_minus_smoothing"),
        alternate_smoothing=layer.number("alternate_smoothing"),
        alternate_one_minus_smoothing=layer.number("alternate_one_minus_smoothing"),
        smoothing_bits=layer.number("smoothing_bits"),
        min_signal_remaining=layer.number("min_signal_remaining"),
        bits=layer.number("spectral_subtraction_bits"),
        clamping=bool(layer.number("clamping")),
    )
    memory = KeptState(("memory", layer.y.key), np.zeros(layer.x.shape, np.uint32))
    return Converted(op, (layer.x, memory), ("noise",), (memory.key,))


def _memory(layer: TfliteLayer, name: str, shape: tuple[int, ...], dtype: DType) -> KeptState:
    if min(shape, default=1) < 0 or prod(shape) > _MOST_KEPT:
        raise ValueError(f"a memory of {shape_text(shape)} samples")
    return KeptState((name, layer.y.key), np.zeros(shape, dtype.numpy))


def _rows(layer: TfliteLayer, axes: int = 1) -> int:
    return prod(layer.x.shape[:-axes])


def _delay(layer: TfliteLayer) -> Converted:
    length = layer.number("delay_length")
    if length == 0:
        return Converted(Identity(), (layer.x,))
    memory = _memory(layer, "memory", (_rows(layer), length), _I16)
    return Converted(stream.Delay(length), (layer.x, memory), ("memory",), (memory.key,))


def _framer(layer: TfliteLayer) -> Converted:
    size, step = (layer.number(name) for name in ("frame_size", "frame_step"))
    if min(size, step) < 1:
        raise ValueError(f"frames of {size}, {step} apart")
    op = stream.Framer(size, step, bool(layer.number("prefill")))
    return _counted(op, layer, (_rows(layer), op.kept))


def _stacker(layer: TfliteLayer) -> Converted:
    left, right = (layer.number(f"stacker_{side}_context") for side in ("left", "right"))
    op = stream.Stacker(left, right, layer.number("stacker_step"))
    channels = layer.number("num_channels")
    if layer.x.shape != (channels,):
        raise ValueError(f"{channels} channels of {shape_text(layer.x.shape)}")
    return _counted(op, layer, (op.frames * channels,))


def _counted(op: Op, layer: TfliteLayer, shape: tuple[int, ...]) -> Converted:
    # An operator that keeps samples and a number.
    memory, count = _memory(layer, "memory", shape, _I16), _memory(layer, "count", (), DType.INT32)
    operands = (layer.x, memory, count)
    return Converted(op, operands, ("memory", "count"), (memory.key, count.key))


def _overlap_add(layer: TfliteLayer) -> Converted:
    if len(layer.x.shape) < 2 or layer.x.dtype is None:
        raise ValueError(f"frames of {shape_text(layer.x.shape)}")
    memory = _memory(layer, "memory", (_rows(layer, 2), layer.x.shape[-1]), layer.x.dtype)
    op = stream.OverlapAdd(layer.number("frame_step"))
    return Converted(op, (layer.x, memory), ("memory",), (memory.key,))


def _row(
    convert: Callable[[TfliteLayer], Converted], stem: str, given: DType, made: DType
) -> TfliteConverter:
    return TfliteConverter(convert, (stem,), types=pairs((given,), (made,)))


CONVERTERS: Mapping[str, TfliteConverter] = {
    "CUSTOM SignalEnergy": _row(
        _whole(lambda layer: signal.SpectrumEnergy(layer.number("start_index"), layer.number("end_index"))),
        "energy",
        _I16,
        _U32,
    ),
    "CUSTOM SignalFftAutoScale": _row(
        _whole(lambda layer: signal.FftAutoScale()), "fft_auto_scale", _I16, _I16
    ),
    "CUSTOM SignalFilterBank": _row(
        _whole(lambda layer: signal.FilterBank(layer.number("num_channels"))), "filter_bank", _U32, _U64
    ),
    "CUSTOM SignalFilterBankLog": _row(
        _whole(
            lambda layer: signal.FilterBankLog(
                layer.number("output_scale"), layer.number("input_correction_bits")
            )
        ),
        "filter_bank_log",
        _U32,
        _I16,
    ),
    "CUSTOM SignalFilterBankSpectralSubtraction": _row(
        _spectral_subtraction, "spectral_subtraction", _U32, _U32
    ),
    "CUSTOM SignalFilterBankSquareRoot": _row(
        _whole(lambda layer: signal.FilterBankSquareRoot()), "filter_bank_square_root", _U64, _U32
    ),
    "CUSTOM SignalPCAN": _row(
        _whole(lambda layer: signal.Pcan(layer.number("snr_shift"))), "pcan", _U32, _U32
    ),
    "CUSTOM SignalDelay": _row(_delay, "delay", _I16, _I16),
    "CUSTOM SignalFramer": _row(_framer, "framer", _I16, _I16),
    "CUSTOM SignalIrfft": TfliteConverter(
        _whole(lambda layer: Irfft(layer.number("fft_length"))), ("irfft",), types=_TRANSFORMED
    ),
    "CUSTOM SignalOverlapAdd": TfliteConverter(
        _overlap_add, ("overlap_add",), types=same(DType.FLOAT32, DType.INT16)
    ),
    "CUSTOM SignalRfft": TfliteConverter(
        _whole(lambda layer: Rfft(layer.number("fft_length"))), ("rfft",), types=_TRANSFORMED
    ),
    "CUSTOM SignalStacker": _row(_stacker, "stacker", _I16, _I16),
    "CUSTOM SignalWindow": _row(
        _whole(lambda layer: signal.Window(layer.number("shift"))), "window", _I16, _I16
    ),
}
