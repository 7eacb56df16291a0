"""TFLite Micro's signal library, from samples to features."""

from collections.abc import Callable, Mapping

import numpy as np

from crtgen.frontends.builder import Converted, Memory
from crtgen.frontends.tflite_convert.layer import Converter, Layer, pairs
from crtgen.ir import DType, Op
from crtgen.ops import signal
from crtgen.ops.fft import Rfft

__all__ = ["CONVERTERS"]

_I16, _U32, _U64 = DType.INT16, DType.UINT32, DType.UINT64


def _whole(make: Callable[[Layer], Op]) -> Callable[[Layer], Converted]:
    """An operator of all its inputs, whose attributes are the numbers of its options."""
    return lambda layer: Converted(make(layer), layer.operands)


def _number(layer: Layer, name: str) -> int:
    value = layer.option(name)
    if not isinstance(value, int | bool):
        raise ValueError(f"its option {name} is no whole number")
    return int(value)


def _spectral_subtraction(layer: Layer) -> Converted:
    op = signal.SpectralSubtraction(
        smoothing=_number(layer, "smoothing"),
        one_minus_smoothing=_number(layer, "one_minus_smoothing"),
        alternate_smoothing=_number(layer, "alternate_smoothing"),
        alternate_one_minus_smoothing=_number(layer, "alternate_one_minus_smoothing"),
        smoothing_bits=_number(layer, "smoothing_bits"),
        min_signal_remaining=_number(layer, "min_signal_remaining"),
        bits=_number(layer, "spectral_subtraction_bits"),
        clamping=bool(_number(layer, "clamping")),
    )
    memory = Memory(("memory", layer.y.key), np.zeros(layer.x.shape, np.uint32))
    return Converted(op, (layer.x, memory), ("noise",), (memory.key,))


def _row(convert: Callable[[Layer], Converted], stem: str, given: DType, made: DType) -> Converter:
    return Converter(convert, (stem,), types=pairs((given,), (made,)))


CONVERTERS: Mapping[str, Converter] = {
    "CUSTOM SignalEnergy": _row(
        _whole(
            lambda layer: signal.SpectrumEnergy(_number(layer, "start_index"), _number(layer, "end_index"))
        ),
        "energy",
        _I16,
        _U32,
    ),
    "CUSTOM SignalFftAutoScale": _row(
        _whole(lambda layer: signal.FftAutoScale()), "fft_auto_scale", _I16, _I16
    ),
    "CUSTOM SignalFilterBank": _row(
        _whole(lambda layer: signal.FilterBank(_number(layer, "num_channels"))), "filter_bank", _U32, _U64
    ),
    "CUSTOM SignalFilterBankLog": _row(
        _whole(
            lambda layer: signal.FilterBankLog(
                _number(layer, "output_scale"), _number(layer, "input_correction_bits")
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
        _whole(lambda layer: signal.Pcan(_number(layer, "snr_shift"))), "pcan", _U32, _U32
    ),
    "CUSTOM SignalRfft": _row(_whole(lambda layer: Rfft(_number(layer, "fft_length"))), "rfft", _I16, _I16),
    "CUSTOM SignalWindow": _row(
        _whole(lambda layer: signal.Window(_number(layer, "shift"))), "window", _I16, _I16
    ),
}
