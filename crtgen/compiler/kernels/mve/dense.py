"""Fully connected layers with Helium, for a single row of inputs: eight outputs at a time, or four.

Several rows are computed as a pointwise convolution, in which each row is a pixel.
"""

from dataclasses import dataclass, replace

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Rescale, rescale_of
from crtgen.compiler.kernels.asm import EVEN, ODD, Function, Routine, Writer
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import is_row
from crtgen.compiler.kernels.engine.words import NO_WORDS, Words, by_output
from crtgen.compiler.kernels.mve.conv import matrix_of_pixels
from crtgen.compiler.kernels.mve.epilogue import MveEpilogue, Requantisation, epilogue_words, requantisation
from crtgen.compiler.kernels.mve.matrix import LOADS, PRODUCTS, STORES, WEIGHTS, contiguous, gather_sums
from crtgen.compiler.kernels.mve.shared import shared_dense
from crtgen.compiler.kernels.mve.stream import LANES, sixteenths, stream_const, sums_fit, unpack
from crtgen.compiler.kernels.shared.single_routine import single_routine
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT8, Conv2d, ConvParams, FullyConnected
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = ["MveDenseView", "dense", "dense_kernel", "row_of_sums", "shared_requantisation"]

_WRITTEN_OUT = {"speed": 16, "size": 2}


@dataclass(frozen=True, slots=True)
class MveDenseView:
    """A layer of ``outputs`` sums of products, ``at_once`` of them (4 or 8) together; inputs have ``size``
    bytes.

    ``head`` vectors of inputs are unrolled, then a loop of ``rounds`` iterations processes ``unroll`` more
    each. If ``tail`` is not 0, only that many bytes of the first vector are used. ``int4``: weights have four
    bits.
    """

    size: int
    outputs: int
    at_once: int
    head: int
    rounds: int
    unroll: int
    tail: int
    epilogue: MveEpilogue
    int4: bool

    @property
    def ragged(self) -> bool:
        return self.outputs % self.at_once != 0


class _MveDenseWriter(Writer):
    def __init__(self, k: MveDenseView) -> None:
        self.k = k
        self.f = f = Function(
            "dense",
            "const void *x",
            "void *y",
            "const uint32_t *weights",
            purpose=f"A fully connected layer of one row: {k.at_once} of {k.outputs} outputs at a time.",
        )
        x, y, weights = f.arguments
        self.x = f.moved(x, "all inputs", ODD)
        self.y = f.moved(y, "outputs", ODD)
        self.weights = f.moved(weights, "weights", ODD)
        self.inputs = f.core("inputs", ODD)
        self.left = f.core("outputs left", ODD)
        self.sums = f.cores("sums", k.at_once, EVEN)
        self.vector, *self.vectors = f.vectors("inputs and weights, then sums and constants", 4)
        self.united = (f.vector("multiplier"), f.vector("last constant")) if k.epilogue.uniform else None

    def write(self) -> None:
        f, k = self.f, self.k
        for q in self.united or ():
            f("vldrw.u32", q, f"[{self.weights}], #16")
        f.number(self.left, k.outputs)
        if not k.ragged:
            self._mask()
        with f.loop("outputs", -(-k.outputs // k.at_once)) as again:
            if k.ragged:
                self._mask()
            f("mov", self.inputs, self.x)
            self._multiply()
            vectors = [self.vector, self.vectors[0]][: k.at_once // 4]
            if k.int4:
                sixteenths(f, self.sums)
            for number, q in enumerate(vectors):
                gather_sums(f, q, self.sums[4 * number : 4 * number + 4])
            for number, q in enumerate(vectors):
                self._store(q)
                f("subs", self.left, self.left, "#4")
                if k.ragged and number < len(vectors) - 1:
                    f("it", "lt")
                    f("movlt", self.left, "#0")
            f("bgt", again)

    def _mask(self) -> None:
        if self.k.tail:
            self.f.number(self.sums[0], self.k.tail)
            self.f("vctp.8", self.sums[0])

    def _multiply(self) -> None:
        f, k = self.f, self.k
        for number in range(k.head):
            self._inputs(not number)
        if k.rounds:
            rounds = f.core("rounds left", ODD)
            with f.counted_loop("inputs", rounds, k.rounds):
                for _ in range(k.unroll):
                    self._inputs(False)
            f.free(rounds)

    def _inputs(self, first: bool) -> None:
        # A vector of them, times the weights of all outputs.
        f, size, masked = self.f, self.k.size, first and self.k.tail
        if masked:
            f("vpst")
        load = LOADS[size].replace(".", "t.") if masked else LOADS[size]
        f(load, self.vector, f"[{self.inputs}], #{masked or LANES}")
        (weigh, step), product = WEIGHTS[size], f"{'vmladav' if first else 'vmladava'}.{PRODUCTS[size]}"
        for number, total in enumerate(self.sums):
            weights, other = self.vectors[number % 3], self.vectors[(number + 1) % 3]
            if self.k.int4 and number % 2:
                f(product, total, self.vector, self.vectors[(number - 1) % 3])
                continue
            f(weigh, weights, f"[{self.weights}], {step}")
            if self.k.int4:
                unpack(f, weights, other)
            f(product, total, self.vector, other if self.k.int4 else weights)

    def _store(self, q: str) -> None:
        f, k = self.f, self.k
        spare = (self.vectors[1], self.vectors[2], self.sums[0])
        epilogue_words(f, k.epilogue, [q], self.weights, spare, self.united)
        if k.ragged:
            f("vctp.32", self.left)
            f("vpst")
        size = k.epilogue.output_size
        f(STORES[size].format("t" if k.ragged else ""), q, f"[{self.y}], #{4 * size}")


@design(
    FullyConnected, Conv2d, types=(DType.INT8, DType.INT16), needs="mve", weights=(1, 2), narrow_weights=True
)
def dense(op: FullyConnected | Conv2d, sig: Signature, target: Target) -> Kernel | None:
    """Fully connected layer of any size, or a convolution whose window is the whole image.

    None for other convolutions, or without an exact requantisation.
    """
    fits = isinstance(op, FullyConnected) or is_row(op, sig)
    return dense_kernel(op.parameters(sig), sig, target) if fits else None


def dense_kernel(params: ConvParams, sig: Signature, target: Target) -> Kernel | None:
    """Return the kernel of a fully connected layer with the requantisation of ``params``; None as for
    ``dense``.
    """
    x, w, b = sig.inputs
    weights, bias = by_output(w), b.array().astype(np.int64)
    rows, int4 = x.elements // weights.shape[1], w.dtype is DType.INT4
    if rows > 1:
        return matrix_of_pixels(rows, weights, bias, params, target, int4)
    if target.optimize == "size" and params.scheme is INT8 and not (int4 or params.is_sum):
        shared = shared_dense(weights, bias, params)
        if shared is not None:
            return shared
    start, size = bias + params.input_offset * weights.sum(axis=1), x.dtype.itemsize
    if int4 and not sums_fit(weights):
        return None
    made = row_of_sums(weights, start, rescale_of(params, weights, bias), size, target, int4)
    if made is None:
        return None
    routine, const = made
    return single_routine(f"mve row {_at_once(len(weights))}", routine, [const])


def row_of_sums(
    weights: Int8, start: Int64, rescale: Rescale, size: int, target: Target, int4: bool = False
) -> tuple[Routine, Const] | None:
    """Return the routine ``dense(x, y, weights)`` for a row of inputs times ``weights[O, K]``, and its packed
    weights.

    Inputs have ``size`` bytes, weights have four bits with ``int4``; sums start at ``start``. None without an
    exact requantisation.
    """
    header, requant = shared_requantisation(rescale, start)
    if requant is None:
        return None
    requant = replace(requant, int4=int4)
    outputs, depth = len(weights), weights.shape[1] * size
    at_once, vectors = _at_once(outputs), -(-depth // LANES)
    unroll = min(vectors, target.steps(_WRITTEN_OUT[target.optimize]))
    head = vectors % unroll or unroll
    rounds = (vectors - head) // unroll
    view = MveDenseView(size, outputs, at_once, head, rounds, unroll, depth % LANES, requant.epilogue, int4)
    note = f"per {at_once} outputs: weights by vectors of inputs, requantisation"
    const = stream_const(weights, contiguous(depth), requant, at_once, note, header, size)
    return _MveDenseWriter.routine(view), const


def _at_once(outputs: int) -> int:
    return 8 if outputs > 4 else 4


def shared_requantisation(rescale: Rescale, start: Int64) -> tuple[Words, Requantisation | None]:
    """Return the words that all outputs share (multiplier and last constant, four times each), and the
    requantisation.

    None without an exact requantisation.
    """
    shared = requantisation(rescale.united(), start) if rescale.uniform else None
    if shared is not None:
        epilogue, common = shared.epilogue, shared.constants[1:]
        if not (epilogue.left or epilogue.some_whole) and (common == common[:, :1]).all():
            header = np.repeat(common[:, 0].astype(np.int32), 4).view(np.uint32)
            return header, Requantisation(replace(epilogue, uniform=True), shared.constants[:1])
    return NO_WORDS, requantisation(rescale, start)
