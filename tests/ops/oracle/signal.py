"""The signal library of TFLite Micro."""

from collections.abc import Mapping
from typing import Any

from flatbuffers import flexbuffers

from crtgen.ir import Node, Op, Signature
from crtgen.ops import signal
from crtgen.ops.fft import Rfft
from tests.ops.oracle.writer import Write, Writer, Written
from tests.tflite_builder import Operator

_INT16 = 7


def _fields(op: Any, sig: Signature) -> tuple[str, dict[str, Any]]:
    match op:
        case signal.Window():
            return "SignalWindow", {"shift": op.shift}
        case signal.FftAutoScale():
            return "SignalFftAutoScale", {}
        case Rfft():
            return "SignalRfft", {"T": _INT16, "fft_length": op.length}
        case signal.SpectrumEnergy():
            return "SignalEnergy", {"end_index": op.end, "start_index": op.start}
        case signal.FilterBank():
            return "SignalFilterBank", {"num_channels": op.channels}
        case signal.FilterBankSquareRoot():
            return "SignalFilterBankSquareRoot", {}
        case signal.Pcan():
            return "SignalPCAN", {"snr_shift": op.shift}
        case signal.FilterBankLog():
            return "SignalFilterBankLog", {
                "input_correction_bits": op.correction_bits,
                "output_scale": op.scale,
            }
    return "SignalFilterBankSpectralSubtraction", {
        "alternate_one_minus_smoothing": op.alternate_one_minus_smoothing,
        "alternate_smoothing": op.alternate_smoothing,
        "clamping": op.clamping,
        "min_signal_remaining": op.min_signal_remaining,
        "num_channels": sig.x.elements,
        "one_minus_smoothing": op.one_minus_smoothing,
        "smoothing": op.smoothing,
        "smoothing_bits": op.smoothing_bits,
        "spectral_subtraction_bits": op.bits,
    }


def _custom(writer: Writer, node: Node, sig: Signature) -> Written:
    name, fields = _fields(node.op, sig)
    kept = {state for pair in writer.graph.states for state in pair}
    inputs, outputs = ([n for n in names if n not in kept] for names in (node.inputs, node.outputs))
    options = bytes(flexbuffers.Dumps(fields))
    writer.tensors = [t for t in writer.tensors if t.name not in kept]
    writer.operators.append(Operator(f"CUSTOM {name}", inputs, outputs, custom=options))
    return "", None, []


_SIGNAL = (
    *(
        signal.Window,
        signal.FftAutoScale,
        signal.SpectrumEnergy,
        signal.FilterBank,
        signal.FilterBankSquareRoot,
    ),
    *(signal.Pcan, signal.FilterBankLog, signal.SpectralSubtraction, Rfft),
)
WRITERS: Mapping[type[Op], Write] = dict.fromkeys(_SIGNAL, _custom)
