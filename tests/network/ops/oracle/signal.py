"""The signal library of TFLite Micro."""

from collections.abc import Mapping
from typing import Any

from flatbuffers import flexbuffers

from crtgen.network.ir import DType, Node, Op, Signature
from crtgen.network.ops import signal, stream
from crtgen.network.ops.fft import Irfft, Rfft
from tests.network.ops.oracle.writer import Write, Writer, Written
from tests.tflite_builder import Operator

_NUMBERS = {DType.FLOAT32: 0, DType.INT32: 2, DType.INT16: 7}
"""What the schema calls types."""


def _of_stream(op: Any, sig: Signature) -> tuple[str, dict[str, Any]]:
    match op:
        case stream.Delay():
            return "SignalDelay", {"delay_length": op.length}
        case stream.Framer():
            fields = {"frame_size": op.size, "frame_step": op.step, "prefill": op.prefill}
            return "SignalFramer", fields
        case stream.OverlapAdd():
            return "SignalOverlapAdd", {"T": _NUMBERS[sig.x.dtype], "frame_step": op.step}
    return "SignalStacker", {
        "num_channels": sig.x.elements,
        "stacker_left_context": op.left,
        "stacker_right_context": op.right,
        "stacker_step": op.step,
    }


def _fields(op: Any, sig: Signature) -> tuple[str, dict[str, Any]]:
    match op:
        case signal.Window():
            return "SignalWindow", {"shift": op.shift}
        case signal.FftAutoScale():
            return "SignalFftAutoScale", {}
        case Rfft() | Irfft():
            code = "SignalRfft" if isinstance(op, Rfft) else "SignalIrfft"
            return code, {"T": _NUMBERS[sig.x.dtype], "fft_length": op.length}
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
    find = _of_stream if isinstance(node.op, _STREAM) else _fields
    name, fields = find(node.op, sig)
    kept = {state for pair in writer.graph.states for state in pair}
    inputs, outputs = ([n for n in names if n not in kept] for names in (node.inputs, node.outputs))
    options = bytes(flexbuffers.Dumps(fields))
    writer.tensors = [t for t in writer.tensors if t.name not in kept]
    writer.operators.append(Operator(f"CUSTOM {name}", inputs, outputs, custom=options))
    return "", None, []


_STREAM = (stream.Delay, stream.Framer, stream.OverlapAdd, stream.Stacker)
_SIGNAL = (
    *(
        signal.Window,
        signal.FftAutoScale,
        signal.SpectrumEnergy,
        signal.FilterBank,
        signal.FilterBankSquareRoot,
    ),
    *(signal.Pcan, signal.FilterBankLog, signal.SpectralSubtraction, Rfft, Irfft),
)
WRITERS: Mapping[type[Op], Write] = dict.fromkeys((*_SIGNAL, *_STREAM), _custom)
