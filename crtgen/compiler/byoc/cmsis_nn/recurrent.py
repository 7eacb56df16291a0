"""Layers with a state, which is their last output; unless it is updated in place, it is copied there
first.
"""

import numpy as np

from crtgen.compiler.byoc.cmsis_nn.elements import left_shift
from crtgen.compiler.byoc.cmsis_nn.layer import CmsisCode, CmsisLayer, Four, call, context, declare
from crtgen.compiler.byoc.cmsis_nn.sources import CmsisSources
from crtgen.compiler.kernels.engine.kernel import Const, InPlace
from crtgen.network.ir import Value
from crtgen.network.ops.lstm import LstmParams
from crtgen.network.ops.scheme import INT16, scheme_of

__all__ = ["lstm", "svdf"]


def svdf(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    """Return a call of ``arm_svdf_s8`` or ``arm_svdf_state_s16_s8``."""
    op, sig, p = layer.op, layer.sig, layer.op.parameters(layer.sig)
    x, feature, time, bias, state = sig.inputs
    wide = scheme_of(state) is INT16
    batch, filters = x.shape[0], time.shape[0]
    function = "arm_svdf_state_s16_s8" if wide else "arm_svdf_s8"
    of_filters, of_units, of_sums = 4 * batch * filters, 4 * batch * filters // op.rank, 4 * filters
    low, high = scheme_of(state).limits
    first, last = scheme_of(sig.y).limits
    lines = [
        f"static const cmsis_nn_svdf_params params = {{{op.rank}, {-p.input_offset}, {p.output_offset}, "
        f"{{{low}, {high}}}, {{{first}, {last}}}}};",
        f"static const cmsis_nn_per_tensor_quant_params in = {{{p.feature[0]}, {p.feature[1]}}};",
        f"static const cmsis_nn_per_tensor_quant_params out = {{{p.time[0]}, {p.time[1]}}};",
        *declare(input=Four(*x.shape, 1, 1), states=Four(*state.shape, 1, 1),
                 features=Four(*feature.shape, 1, 1), times=Four(*time.shape, 1, 1),
                 biases=Four(*bias.shape, 1, 1, 1), output=Four(*sig.y.shape, 1, 1)),
        _brought("y1", layer.names[4], state),
        context(of_filters, "filtered"),
        context(of_units, "units", of_filters),
    ]  # fmt: skip
    functions, contexts, nbytes = [function], ["&filtered", "&units"], of_filters + of_units
    if not wide:
        lines.append(context(of_sums, "sums", nbytes))
        sums = ("(int32_t *)sums.buf", x.shape[1], filters, layer.names[1], p.input_offset, 0, "NULL")
        lines += [call("arm_vector_sum_s8", *sums)] if layer.extension == "mve" else []
        functions.append("arm_vector_sum_s8")
        contexts, nbytes = ["&sums", *contexts], nbytes + of_sums
    source, features, times, biases, _ = layer.names
    lines.append(
        call(function, *contexts, "&params", "&in", "&out", "&input", source, "&states", "y1",
             "&features", features, "&times", times, "&biases", biases, "&output", "y0")
    )  # fmt: skip
    return CmsisCode(tuple(lines), tuple(functions), (), nbytes, (InPlace(input=1, output=1),))


def _brought(to: str, name: str, state: Value) -> str:
    return f"if ({to} != {name}) {{ (void)memcpy({to}, {name}, {state.nbytes}); }}"


def lstm(layer: CmsisLayer, sources: CmsisSources) -> CmsisCode:
    op, sig, p = layer.op, layer.sig, layer.op.parameters(layer.sig)
    hidden, cell, w, r, bias = sig.inputs[1:]
    batch, units = hidden.shape
    times = sig.x.shape[0 if op.time_major else 1]
    function, clip = f"arm_lstm_unidirectional_{layer.kind}", p.clip or INT16.high
    numbers = (int(op.time_major), batch, times, sig.x.shape[2], units, p.input_offset, *p.forget, *p.update,
               clip, (left_shift(p.tanh) or 0) - 12, *p.output, p.output_offset)  # fmt: skip
    gates = (1, 0, 2, 3)  # theirs: forget, input, cell, output
    lines = (
        f"const cmsis_nn_lstm_params params = {{{', '.join(map(str, numbers))},",
        *(f"    {{{_gate(layer, p, gate)}}}," for gate in gates),
        "};",
        _brought("y1", layer.names[1], hidden),
        _brought("y2", layer.names[2], cell),
        f"cmsis_nn_lstm_context buffers = {{scratch, (int16_t *)(void *)scratch + {batch * units}, y2, y1}};",
        call(function, layer.names[0], "y0", "&params", "&buffers"),
    )
    dtype = scheme_of(sig.x).biases.numpy
    sums = [p.input_offset * w.array().astype(np.int64).sum(axis=2) + bias.array().astype(np.int64)]
    sums.append(p.hidden_offset * r.array().astype(np.int64).sum(axis=2))
    consts = tuple(Const.of(n, s.astype(dtype), 8) for n, s in zip(("fresh", "recurrent"), sums, strict=True))
    inplace = (InPlace(input=1, output=1), InPlace(input=2, output=2))
    return CmsisCode(lines, (function,), consts, 4 * batch * units, inplace)


def _gate(layer: CmsisLayer, p: LstmParams, gate: int) -> str:
    # A ``cmsis_nn_lstm_gate``; weights and biases of all gates are one constant each.
    units, depth = layer.sig.inputs[3].shape[1:]
    w, r = layer.names[3:5]
    fresh = f"{w} + {gate * units * depth}, fresh + {gate * units}"
    recurrent = f"{r} + {gate * units * units}, recurrent + {gate * units}"
    function = "ARM_TANH" if gate == 2 else "ARM_SIGMOID"
    (a, b), (c, d) = p.of_input[gate], p.of_hidden[gate]
    return f"{a}, {b}, {fresh}, {c}, {d}, {recurrent}, NULL, {function}"
