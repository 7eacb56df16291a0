"""Computes features from the samples of frames, operator by operator."""

from math import log

import numpy as np
import numpy.typing as npt

from crtgen.network.features.micro import integer_window, micro_channels, pcan_gains
from crtgen.network.features.settings import MelSettings, MicroSettings, SoundSettings
from crtgen.network.features.steps import Handle, Steps
from crtgen.network.features.tables import chroma_bank, cosines, mel_bank, slope_weights, window_of
from crtgen.network.ir import DType, Quant
from crtgen.network.ops import (
    Add,
    Before,
    Cast,
    Div,
    FftAutoScale,
    FilterBank,
    FilterBankLog,
    FilterBankSquareRoot,
    Frame,
    LogFloor,
    Maximum,
    Minimum,
    Mul,
    Pcan,
    Power,
    ReduceMax,
    Rfft,
    Round,
    RoundedRatio,
    ScaledExp,
    ScaledLog,
    SpectralSubtraction,
    SpectrumEnergy,
    Sqrt,
    Sub,
)

__all__ = ["features_of"]

# The part of a spectrum from which on its powers are computed whole: to cut more off costs a copy.
_MOSTLY = 0.875

# Bins that are computed at once where there are vectors.
_GROUP = 4

# Of a row without any power nothing is divided by 0: the least normal number of float32.
_LEAST = 1.1754943508222875e-38

_CORRECTION_BITS = 3
_SNR_BITS = 12
# Scale and zero point that networks trained on the integer front end expect of its bytes.
_MICRO_INT8 = Quant.tensor(26 / 256, -128)


def features_of(steps: Steps, settings: SoundSettings, *, quantized: bool = False) -> Handle:
    """Return the features of all frames, before stacking: ``[rows, width]``.

    Float32 features are converted to int8 if ``quantized``, with the settings' scale; the integer front end
    gives int8 or int16.
    """
    if isinstance(settings, MicroSettings):
        return _micro(steps, settings)
    made = _clipped(steps, settings, _logarithms(steps, settings))
    return _truncated(steps, settings, made) if quantized else made


def _logarithms(steps: Steps, s: MelSettings) -> Handle:
    bank = _bank(s) / s.divide
    bins = _used(bank, whole=s.arithmetic != "int32")

    def row() -> Handle:
        made = steps.bands("bank", _spectrum(steps, s, bins), bank[bins[0] : bins[1]])
        if s.row_norm == "max":
            greatest = steps.one(ReduceMax((0,), keep_dims=True), made)
            made = steps.one(Div(), made, steps.one(Maximum(), greatest, steps.number(_LEAST)))
        return _normalized_energies(steps, s, made) if s.log == "pcen" else made

    bands = steps.rows(row)
    if s.normalize:
        for _ in range(2 if s.spectrum == "power" else 1):
            bands = steps.one(Div(), bands, steps.peak())
    if s.log in ("ln", "db"):
        bands = steps.one(_logarithm(s), bands)
    if s.top:
        bands = steps.one(Maximum(), bands, steps.one(Sub(), steps.greatest(bands), steps.number(s.top)))
    if s.relative:
        bands = steps.one(Sub(), bands, steps.greatest(bands))
    if s.coefficients:
        bands = steps.bands("cosines", bands, _cepstrum(s))
    if s.cmvn:
        bands = _normalized(steps, s, bands)
    return _with_deltas(steps, s, bands) if s.deltas else bands


def _normalized_energies(steps: Steps, s: MelSettings, energy: Handle) -> Handle:
    # Each band over a power of what it was for some time, and a root of that: librosa's ``pcen``. ``(E /
    # (floor + M)^gain + bias)^power - bias^power``, where M follows E within ``pcen_time`` seconds.
    rows = s.pcen_time * s.rate / s.hop
    factor = (np.sqrt(1 + 4 * rows**2) - 1) / (2 * rows**2)
    level = steps.smoothed(energy, float(factor), 1.0)
    decline = steps.one(ScaledLog(s.floor, LogFloor.ADD, -s.pcen_gain, 0.0), level)
    ratio = steps.one(Mul(), energy, steps.one(ScaledExp(1.0, 0.0), decline))
    lifted = steps.one(ScaledLog(s.pcen_bias, LogFloor.ADD, s.pcen_power, 0.0), ratio)
    return steps.one(ScaledExp(1.0, -(s.pcen_bias**s.pcen_power)), lifted)


def _with_deltas(steps: Steps, s: MelSettings, rows: Handle) -> Handle:
    # Rows, how they change, how that changes and so on: each the slope over some rows on both sides. That is
    # sum(n * (x[t + n] - x[t - n])) / (2 * sum(n * n)) for n from 1 on.
    # With ``interp``, a polynomial of degree 1 is fitted to the rows at either end: one slope for them all.
    # Of ``orders``, the k-th is the k-th derivative, a constant, of a polynomial of degree k fitted to rows.
    parts = [rows]
    if s.delta_kind == "orders":
        weights = [slope_weights(reach, order) for order, reach in enumerate(s.deltas, 1)]
        return steps.beside(rows, *(steps.summed(rows, w, s.delta_ends) for w in weights))
    for reach in s.deltas:
        places = np.arange(-reach, reach + 1)
        parts.append(steps.summed(parts[-1], places / np.square(places).sum(), s.delta_ends))
    return steps.beside(*parts)


def _normalized(steps: Steps, s: MelSettings, rows: Handle) -> Handle:
    # Rows less the mean around them, over the deviation of what is left around them.
    reach = s.cmvn // 2
    rest = steps.one(Sub(), rows, steps.averaged(rows, reach))
    squares = steps.averaged(steps.one(Mul(), rest, rest), reach)
    mean = steps.averaged(rest, reach)
    variance = steps.one(Maximum(), steps.one(Sub(), squares, steps.one(Mul(), mean, mean)), steps.number(0))
    deviation = steps.one(Add(), steps.one(Sqrt(), variance), steps.number(1e-10))
    return steps.one(Div(), rest, deviation)


def _bank(s: MelSettings) -> npt.NDArray[np.float64]:
    # The filter bank; with ``energy``, a last band of all bins.
    if s.slope == "chroma":
        return chroma_bank(rate=s.rate, fft=s.fft, count=s.bands, tuning=s.tuning)
    bank = mel_bank(
        rate=s.rate,
        fft=s.fft,
        count=s.bands,
        low=s.low,
        high=s.top_frequency,
        scale=s.scale,
        slope=s.slope,
        norm=s.norm,
    )
    return np.hstack([bank, np.ones((len(bank), 1))]) if s.energy else bank


def _cepstrum(s: MelSettings) -> npt.NDArray[np.float64]:
    # The cosines; with ``energy``, the last band is the first coefficient.
    matrix = cosines(s.bands, s.coefficients, s.dct, s.lifter)
    if not s.energy:
        return matrix
    matrix = np.vstack([matrix, np.zeros((1, s.coefficients))])
    matrix[:, 0] = 0
    matrix[-1, 0] = 1
    return matrix


def _used(bank: npt.NDArray[np.float64], *, whole: bool) -> tuple[int, int]:
    # The bins from the first one that is in a band to behind the last one; at least two. Of a spectrum that
    # is computed as a ``whole``, all where few are in no band, and from a group on else.
    used, size = np.flatnonzero(bank.any(axis=1)), len(bank)
    first = int(min(used.min(initial=size), size - 2))
    end = max(int(used.max(initial=0)) + 1, first + 2)
    if not whole:
        return first, end
    first -= first % _GROUP
    return (first, end) if end - first < _MOSTLY * size else (0, size)


def _spectrum(steps: Steps, s: MelSettings, bins: tuple[int, int]) -> Handle:
    # The powers of bins from one to before another one, or their roots.
    weights = (window_of(s.window, s.frame, s.periodic)[: s.used] / s.unit).astype(np.float32)
    if s.arithmetic == "int32":
        over = s.preemphasis_over
        powers = steps.powers(weights, s.preemphasis, over, s.fft, bins, centred=s.remove_mean)
        return steps.one(Sqrt(), powers) if s.spectrum == "magnitude" else powers
    if s.remove_mean:
        factors = steps.constant("window", weights)
        frame = steps.one(Frame(0, s.preemphasis, Before.ITSELF), steps.centred(s.used), factors)
    else:
        frame = steps.frame(weights, s.preemphasis, s.preemphasis_over)
    spectrum = steps.one(Rfft(s.fft), frame)
    if bins != (0, s.fft // 2 + 1):
        spectrum = steps.part(spectrum, 2 * bins[0], 2 * bins[1])
    return steps.one(Power(s.spectrum == "magnitude"), spectrum)


def _logarithm(s: MelSettings) -> ScaledLog:
    unit = 10 / log(10) if s.log == "db" else 1.0
    return ScaledLog(s.floor, LogFloor(s.floor_kind), unit * s.gain, s.offset)


def _clipped(steps: Steps, s: MelSettings, rows: Handle) -> Handle:
    if s.clip is not None:
        rows = steps.one(Maximum(), rows, steps.number(s.clip[0]))
        rows = steps.one(Minimum(), rows, steps.number(s.clip[1]))
    if s.steps:
        whole = steps.one(Round(), steps.one(Mul(), rows, steps.number(s.steps)))
        wrapped = steps.one(Cast(DType.UINT8), whole)
        rows = steps.one(Mul(), steps.one(Cast(DType.FLOAT32), wrapped), steps.number(1 / s.steps))
    return rows


def _truncated(steps: Steps, s: MelSettings, rows: Handle) -> Handle:
    # int8, cut towards zero; what is above 127 wraps.
    scaled = steps.one(Div(), rows, steps.number(s.quantum))
    moved = steps.one(Add(), scaled, steps.number(s.zero_point))
    return steps.one(Cast(DType.INT8), moved, quant=Quant.tensor(s.quantum, s.zero_point))


def _micro(steps: Steps, s: MicroSettings) -> Handle:
    channels = micro_channels(s)
    window, gains = integer_window(s.frame, s.tables), pcan_gains(s)

    def row() -> Handle:
        scaled, bits = steps.apply(FftAutoScale(), steps.windowed(window, 12))
        energy = steps.one(SpectrumEnergy(channels.start, channels.end), steps.one(Rfft(s.fft), scaled))
        tables = [steps.constant(name, table) for name, table in channels.tables]
        roots = steps.one(FilterBankSquareRoot(), steps.one(FilterBank(s.channels), energy, *tables), bits)
        noise = steps.state("noise", np.zeros(s.channels, np.uint32))
        quiet, estimate, after = steps.apply(_subtraction(s), roots, noise)
        steps.become("noise", after)
        shift = s.pcan_gain_bits - _CORRECTION_BITS - _SNR_BITS
        controlled = steps.one(Pcan(shift), quiet, estimate, steps.constant("gains", gains))
        return steps.one(FilterBankLog(1 << s.log_shift, _CORRECTION_BITS), controlled)

    logs = steps.rows(row)
    return steps.one(RoundedRatio(256, 666, -128), logs, quant=_MICRO_INT8) if s.int8 else logs


def _subtraction(s: MicroSettings) -> SpectralSubtraction:
    one = 1 << 14
    even, odd = int(s.even_smoothing * one), int(s.odd_smoothing * one)
    least = int(s.min_signal_remaining * one)
    return SpectralSubtraction(even, one - even, odd, one - odd, s.smoothing_bits, least, 14, False)
