"""Expands the attention operators of ONNX Runtime's transformer optimiser into the operators that they
replaced.

``Attention`` is three products with weights in one matrix, their split into heads, and

    softmax(q @ k^T * scale + mask) @ v

for each head. ``MultiHeadAttention`` gets q, k and v; in ``QAttention`` input and weights are integers. A
mask has one row per sequence, with 1 for valid positions, or just their number; scores of other positions get
``mask_filter_value`` added, by default -10,000. The expansion does not need to know lengths: Reshape keeps
lengths given as 0, and computed lengths are constants by the time that layers are made.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from crtgen.network.frontends.onnx_fused import Fused

__all__ = ["ATTENTION", "can_be_spelled"]

_LEAST = float(np.finfo(np.float32).min)
_TRILU = 14
_AXES_AS_INPUT = 18

Nodes = Iterator[Any]
# Position of a mask, of a bias of the scores, and of those inputs that have to be absent.
_MASKS: Mapping[str, tuple[int, int, tuple[int, ...]]] = {
    "Attention": (3, 5, (4, 6)),
    "MultiHeadAttention": (4, 5, (6, 7)),
    "QAttention": (5, -1, (8,)),
}
_FLAGS = ("do_rotary", "past_present_share_buffer", "is_packed_batching", "rotary_embedding_dim")


def can_be_spelled(code: str, fused: Fused) -> bool:
    if any(fused.flag(name) for name in _FLAGS):
        return False
    if code == "RotaryEmbedding":
        return fused.ranks.get(fused.given(0), 0) == 4 and fused.ranks.get(fused.given(1), 0) == 2
    if code not in _MASKS:
        return True
    mask, _, absent = _MASKS[code]
    known = not fused.given(mask) or fused.ranks.get(fused.given(mask), 0) in (1, 2)
    packed = code == "MultiHeadAttention" and not all(fused.given(i) for i in range(3))
    whole = fused.opset >= _TRILU or not fused.flag("unidirectional")
    return known and whole and not packed and not any(map(fused.given, absent)) and not any(fused.outputs[1:])


def _part(fused: Fused, x: str, role: str, first: int, last: int) -> Any:
    # Elements of the last axis.
    ends = [fused.list_of(f"{role}.{n}", [v]) for n, v in (("first", first), ("last", last), ("axis", -1))]
    return fused.node("Slice", [x, *ends], role)


def _reshaped(fused: Fused, x: str, role: str, shape: list[int]) -> Any:
    return fused.node("Reshape", [x, fused.list_of(f"{role}.shape", shape)], role)


def _attention(fused: Fused) -> Nodes:
    yield fused.node("MatMul", [fused.given(0), fused.given(1)], "product")
    yield from _of_product(fused, "product")


def _qattention(fused: Fused) -> Nodes:
    x, w, zeros = fused.given(0), fused.given(1), [fused.given(6), fused.given(7)]
    while zeros and not zeros[-1]:
        zeros.pop()
    yield fused.node("MatMulInteger", [x, w, *zeros], "sums")
    yield fused.node("Cast", [fused.made("sums")], "real", to=TensorProto.FLOAT)
    yield fused.node("Mul", [fused.given(3), fused.given(4)], "factor")
    yield fused.node("Mul", [fused.made("real"), fused.made("factor")], "product")
    yield from _of_product(fused, "product")


def _of_product(fused: Fused, product: str) -> Nodes:
    # Attention of the three parts of a product, each of a third unless they are stated.
    before = fused.made(product)
    if fused.given(2):
        yield fused.node("Add", [before, fused.given(2)], "biased")
        before = fused.made("biased")
    sizes = [int(n) for n in fused.options.get("qkv_hidden_sizes", ())]
    if sizes:
        ends = np.cumsum([0, *sizes]).tolist()
        for role, first, last in zip("qkv", ends, ends[1:], strict=False):
            yield _part(fused, before, role, first, last)
    else:
        yield _reshaped(fused, before, "thirds", [0, 0, 3, -1])
        for index, role in enumerate("qkv"):
            place = fused.list_of(f"{role}.place", [index])
            yield fused.node("Gather", [fused.made("thirds"), place], f"{role}.third", axis=2)
            yield _reshaped(fused, fused.made(f"{role}.third"), role, [0, 0, -1])
    yield from _heads(fused, *(fused.made(role) for role in "qkv"))


def _multi_head(fused: Fused) -> Nodes:
    names = [fused.given(i) for i in range(3)]
    if fused.given(3):
        yield _reshaped(fused, fused.given(3), "biases", [3, -1])
        for index, role in enumerate("qkv"):
            place = fused.list_of(f"{role}.place", [index])
            yield fused.node("Gather", [fused.made("biases"), place], f"{role}.row", axis=0)
            yield _reshaped(fused, fused.made(f"{role}.row"), f"{role}.bias", [-1])
            yield fused.node("Add", [names[index], fused.made(f"{role}.bias")], role)
        names = [fused.made(role) for role in "qkv"]
    yield from _heads(fused, *names)


def _heads(fused: Fused, q: str, k: str, v: str) -> Nodes:
    # Split into heads, scores and their shares, and the heads side by side again.
    count = int(fused.options["num_heads"])
    for role, x, perm in (("q", q, [0, 2, 1, 3]), ("k", k, [0, 2, 3, 1]), ("v", v, [0, 2, 1, 3])):
        yield _reshaped(fused, x, f"{role}.heads", [0, 0, count, -1])
        yield fused.node("Transpose", [fused.made(f"{role}.heads")], f"{role}.turned", perm=perm)
    yield fused.node("MatMul", [fused.made("q.turned"), fused.made("k.turned")], "scores")
    yield from _scaled(fused)
    yield from _masked(fused)
    yield fused.node("Softmax", [fused.made("masked")], "shares", axis=-1)
    yield fused.node("MatMul", [fused.made("shares"), fused.made("v.turned")], "sums.heads")
    yield fused.node("Transpose", [fused.made("sums.heads")], "joined", perm=[0, 2, 1, 3])
    yield _reshaped(fused, fused.made("joined"), "", [0, 0, -1])


def _scaled(fused: Fused) -> Nodes:
    # Scores times the scale, by default one by the root of a head's length.
    scale = float(fused.options.get("scale", 0.0))
    if scale:
        factor = fused.number("scale", scale)
    else:
        yield fused.node("Shape", [fused.made("q.turned")], "lengths")
        yield _part(fused, fused.made("lengths"), "length", 3, 4)
        yield fused.node("Cast", [fused.made("length")], "length.real", to=TensorProto.FLOAT)
        yield fused.node("Sqrt", [fused.made("length.real")], "root")
        yield fused.node("Reciprocal", [fused.made("root")], "scale")
        factor = fused.made("scale")
    yield fused.node("Mul", [fused.made("scores"), factor], "scaled")


def _masked(fused: Fused) -> Nodes:
    # Scores with what masks and biases add.
    mask, bias, _ = _MASKS[fused.code]
    added = [fused.given(bias)] if bias >= 0 and fused.given(bias) else []
    if fused.given(mask):
        yield from _of_places(fused, fused.given(mask))
        added.append(fused.made("filter"))
    if fused.flag("unidirectional"):
        yield from _backward(fused)
        added.append(fused.made("future"))
    before = fused.made("scaled")
    for index, name in enumerate(added):
        yield fused.node("Add", [before, name], f"added{index}")
        before = fused.made(f"added{index}")
    yield fused.node("Identity", [before], "masked")


def _of_places(fused: Fused, mask: str) -> Nodes:
    # What a mask of places adds to scores; a single number per sequence is that of its places.
    yield fused.node("Cast", [mask], "mask.real", to=TensorProto.FLOAT)
    if fused.ranks[mask] == 1:
        yield fused.node("Shape", [fused.made("k.turned")], "k.lengths")
        yield _part(fused, fused.made("k.lengths"), "places.count", 3, 4)
        yield fused.node("Expand", [fused.number("one", 1), fused.made("places.count")], "ones")
        axis = fused.number("axis", 0)
        yield fused.node("Cast", [axis], "axis.whole", to=TensorProto.INT64)
        yield fused.node("CumSum", [fused.made("ones"), fused.made("axis.whole")], "places")
        yield _reshaped(fused, fused.made("mask.real"), "mask.column", [-1, 1])
        yield fused.node("Sub", [fused.made("mask.column"), fused.made("places")], "left")
        yield fused.node("Less", [fused.made("left"), fused.number("none", 0)], "is_beyond")
    else:
        yield fused.node("Less", [fused.made("mask.real"), fused.number("least", 0.5)], "is_beyond")
    yield fused.node("Cast", [fused.made("is_beyond")], "beyond", to=TensorProto.FLOAT)
    value = fused.number("filter.value", float(fused.options.get("mask_filter_value", -10000.0)))
    yield fused.node("Mul", [fused.made("beyond"), value], "filter.rows")
    yield _reshaped(fused, fused.made("filter.rows"), "filter", [0, 1, 1, -1])


def _backward(fused: Fused) -> Nodes:
    # What takes the scores of later places away.
    yield fused.node("Shape", [fused.made("scores")], "scores.lengths")
    yield _part(fused, fused.made("scores.lengths"), "sides", 2, 4)
    yield fused.node("Expand", [fused.number("least.value", _LEAST), fused.made("sides")], "square")
    yield fused.node("Trilu", [fused.made("square"), fused.step("above", 1)], "future", upper=1)


def _embedding(fused: Fused) -> Nodes:
    # Rows of words, of places and of segments, their sum and its normalisation.
    ids, segments, words, places, kinds, scale, bias, mask, positions = map(fused.given, range(9))
    yield fused.node("Gather", [words, ids], "words")
    if positions:
        yield fused.node("Gather", [places, positions], "places")
    else:
        yield fused.node("Shape", [ids], "lengths")
        yield _part(fused, fused.made("lengths"), "length", 1, 2)
        ends = [fused.list_of("first", [0]), fused.made("length"), fused.list_of("axis", [0])]
        yield fused.node("Slice", [places, *ends], "places")
    yield fused.node("Add", [fused.made("words"), fused.made("places")], "both")
    total = fused.outputs[2] if len(fused.outputs) > 2 and fused.outputs[2] else fused.made("sum")
    if segments:
        yield fused.node("Gather", [kinds, segments], "kinds")
        yield helper.make_node("Add", [fused.made("both"), fused.made("kinds")], [total])
    else:
        yield helper.make_node("Identity", [fused.made("both")], [total])
    own = {"axis": -1, "epsilon": fused.options.get("epsilon", 1e-12)}
    yield fused.node("LayerNormalization", [total, scale, bias], "", **own)
    if len(fused.outputs) > 1 and fused.outputs[1]:
        yield from _counted(fused, mask, ids)


def _counted(fused: Fused, mask: str, ids: str) -> Nodes:
    # The number of places that count in each sequence; without a mask, none.
    source = mask
    if not mask:
        yield fused.node("Sub", [ids, ids], "none")
        source = fused.made("none")
    yield from fused.reduced("ReduceSum", source, "counted", 1, _AXES_AS_SUM)
    yield fused.node("Cast", [fused.made("counted")], "counted.whole", to=TensorProto.INT32)
    yield helper.make_node("Identity", [fused.made("counted.whole")], [fused.outputs[1]])


_AXES_AS_SUM = 13


def _rotary(fused: Fused) -> Nodes:
    # Pairs of elements, turned by the angle of their place: ``x * cos - y * sin`` and ``x * sin + y * cos``.
    x, positions, cos, sin = map(fused.given, range(4))
    for role, table in (("cos", cos), ("sin", sin)):
        yield fused.node("Gather", [table, positions], f"{role}.rows")
        yield fused.node("Shape", [fused.made(f"{role}.rows")], f"{role}.lengths")
        yield _part(fused, fused.made(f"{role}.lengths"), f"{role}.batch", 0, 1)
        rest = fused.list_of(f"{role}.rest", [1])
        yield _part(fused, fused.made(f"{role}.lengths"), f"{role}.others", 1, 3)
        parts = [fused.made(f"{role}.batch"), rest, fused.made(f"{role}.others")]
        yield fused.node("Concat", parts, f"{role}.shape", axis=0)
        yield fused.node("Reshape", [fused.made(f"{role}.rows"), fused.made(f"{role}.shape")], role)
    pairs = bool(fused.flag("interleaved"))
    yield _reshaped(fused, x, "parted", [0, 0, 0, -1, 2] if pairs else [0, 0, 0, 2, -1])
    for index, role in enumerate(("a", "b")):
        place = fused.list_of(f"{role}.place", [index])
        yield fused.node("Gather", [fused.made("parted"), place], f"{role}.part", axis=4 if pairs else 3)
        yield _reshaped(fused, fused.made(f"{role}.part"), role, [0, 0, 0, -1])
    a, b, cosine, sine = (fused.made(role) for role in ("a", "b", "cos", "sin"))
    for role, code, first, second in (("x", "Sub", cosine, sine), ("y", "Add", sine, cosine)):
        yield fused.node("Mul", [a, first], f"{role}.a")
        yield fused.node("Mul", [b, second], f"{role}.b")
        yield fused.node(code, [fused.made(f"{role}.a"), fused.made(f"{role}.b")], role)
        shape = [0, 0, 0, -1, 1] if pairs else [0, 0, 0, 1, -1]
        yield _reshaped(fused, fused.made(role), f"{role}.apart", shape)
    ends = [fused.made("x.apart"), fused.made("y.apart")]
    yield fused.node("Concat", ends, "turned", axis=4 if pairs else 3)
    yield _reshaped(fused, fused.made("turned"), "", [0, 0, 0, -1])


def _root_mean_square(fused: Fused) -> Nodes:
    yield from _by_root_mean_square(fused, fused.given(0), fused.given(1), 1e-5)


def _skip_root_mean_square(fused: Fused) -> Nodes:
    # A sum, of three if there is a bias, and its normalisation; the sum may be an output, too.
    total = fused.outputs[3] if len(fused.outputs) > 3 and fused.outputs[3] else fused.made("sum")
    first = fused.made("both") if fused.given(3) else total
    yield helper.make_node("Add", list(fused.inputs[:2]), [first])
    if fused.given(3):
        yield helper.make_node("Add", [first, fused.given(3)], [total])
    yield from _by_root_mean_square(fused, total, fused.given(2), 1e-12)


def _by_root_mean_square(fused: Fused, x: str, scale: str, epsilon: float) -> Nodes:
    yield fused.node("Mul", [x, x], "squares")
    yield from fused.reduced("ReduceMean", fused.made("squares"), "mean", -1, _AXES_AS_INPUT, keepdims=1)
    least = fused.number("epsilon", fused.options.get("epsilon", epsilon))
    yield fused.node("Add", [fused.made("mean"), least], "above")
    yield fused.node("Sqrt", [fused.made("above")], "root")
    yield fused.node("Div", [x, fused.made("root")], "normal")
    yield fused.node("Mul", [fused.made("normal"), scale], "")


ATTENTION: Mapping[str, Callable[[Fused], Nodes]] = {
    "Attention": _attention,
    "EmbedLayerNormalization": _embedding,
    "MultiHeadAttention": _multi_head,
    "QAttention": _qattention,
    "RotaryEmbedding": _rotary,
    "SimplifiedLayerNormalization": _root_mean_square,
    "SkipSimplifiedLayerNormalization": _skip_root_mean_square,
}
