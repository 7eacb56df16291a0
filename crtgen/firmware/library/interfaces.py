"""The interface of an AOT model of TVM: names, shapes and types of its inputs and outputs.

Packed models have it in the C code of ``get_c_metadata``. Models with a C interface have the order in their
header, types in ``metadata.json`` and shapes in the Relay text. An output without a recorded shape is a
vector, of rank 2 if an input has a batch size of 1.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.firmware.library.datatype import DLDataType
from crtgen.firmware.library.metadata import MainFunction, TensorSize
from crtgen.firmware.library.mlf import MlfModel

__all__ = ["AotInterface", "AotTensor", "c_interface", "packed_interface"]

_INFO = re.compile(
    r'\{\s*"((?:[^"\\]|\\.)*)" /\* name\*/,\s*(\w+|NULL),\s*\d+L /\* num_shape\*/,\s*'
    r"\{(\d{1,5}), (\d{1,5}), (\d{1,5})\} /\* dtype\*/\}"
)
_SHAPE = re.compile(r"static const int64_t (\w+)\[\d+\] = \{([^{}]*+)\};")
_MEMBER = re.compile(r"void\s*\*\s*(\w+);")
_RELAY_INPUT = re.compile(r"%([^\s,()%]+): Tensor\[\(([\d, ]*)\), (\w+)\]")
_RELAY_RESULT = re.compile(r"-> ([^{>]*+)\{")
_RELAY_TENSOR = re.compile(r"Tensor\[\(([\d, ]*)\), \w+\]")


@dataclass(frozen=True, slots=True)
class AotTensor:
    """An input or output; ``member`` is its name in the structs of the C interface."""

    name: str
    shape: tuple[int, ...]
    dtype: DLDataType
    member: str = ""


@dataclass(frozen=True, slots=True)
class AotInterface:
    """The inputs and outputs of a model, in the order of its run function."""

    inputs: tuple[AotTensor, ...]
    outputs: tuple[AotTensor, ...]


def packed_interface(model: MlfModel) -> AotInterface:
    text = next((s for s in model.code.sources.values() if "kTvmgenMetadata_inputs[" in s), None)
    if text is None:
        raise UnsupportedError("the model has neither a C interface nor metadata in C", where=model.name)
    shapes = {m[1]: _numbers(m[2].replace("L", "")) for m in _SHAPE.finditer(text)}
    return AotInterface(_infos(text, "inputs", shapes), _infos(text, "outputs", shapes))


def _infos(text: str, kind: str, shapes: dict[str, tuple[int, ...]]) -> tuple[AotTensor, ...]:
    start = text.index(f"kTvmgenMetadata_{kind}[")
    table = text[start : text.find("\n};", start)]
    return tuple(
        AotTensor(m[1], shapes.get(m[2], ()), DLDataType(int(m[3]), int(m[4]), int(m[5])))
        for m in _INFO.finditer(table)
    )


def c_interface(model: MlfModel, header: str) -> AotInterface:
    """Return the interface from the header, ``metadata.json`` and the Relay text."""
    prefix = f"struct tvmgen_{model.name}_"
    for extra in ("devices", "workspace_pools"):
        if f"{prefix}{extra} " in header:
            raise UnsupportedError(f"the C interface of the model asks for {extra}", where=model.name)
    if not model.metadata.main:
        raise CorruptModelError("metadata.json has no main function", where=model.name)
    main: MainFunction = model.metadata.main[0]
    relay = _RELAY_INPUT.finditer(model.relay.partition("\n")[0])
    relay_inputs = {_member(m[1]): _numbers(m[2]) for m in relay}
    inputs = [_tensor(m, main.inputs, model.name) for m in _members(header, f"{prefix}inputs")]
    outputs = [_tensor(m, main.outputs, model.name) for m in _members(header, f"{prefix}outputs")]
    results = _relay_results(model.relay)
    shapes = results if len(results) == len(outputs) else [None] * len(outputs)
    shaped = tuple(_shaped(t, relay_inputs.get(t.member)) for t in inputs)
    batch = (1,) if any(len(t.shape) > 1 and t.shape[0] == 1 for t in shaped) else ()
    return AotInterface(
        shaped,
        tuple(_shaped(t, shape or (*batch, *t.shape)) for t, shape in zip(outputs, shapes, strict=True)),
    )


def _members(header: str, struct: str) -> list[str]:
    start = header.find(f"{struct} {{")
    return _MEMBER.findall(header[start : header.find("}", start)]) if start >= 0 else []


def _member(name: str) -> str:
    # Spelling of a tensor's name in the header.
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def _tensor(member: str, sizes: Sequence[TensorSize], where: str) -> AotTensor:
    # A vector of the right size.
    for size in sizes:
        if _member(size.name) == member:
            dtype = DLDataType.parse(size.dtype, where)
            return AotTensor(size.name, (size.size // dtype.itemsize,), dtype, member)
    raise CorruptModelError(f"the C interface has {member}, which metadata.json does not", where=where)


def _shaped(tensor: AotTensor, shape: tuple[int, ...] | None) -> AotTensor:
    product = 1
    for dim in shape or ():
        product *= dim
    if shape is None or product != tensor.shape[0]:
        return tensor
    return AotTensor(tensor.name, shape, tensor.dtype, tensor.member)


def _relay_results(relay: str) -> Sequence[tuple[int, ...] | None]:
    match = _RELAY_RESULT.search(relay.partition("\n")[0])
    return [] if match is None else [_numbers(m[1]) for m in _RELAY_TENSOR.finditer(match[1])]


def _numbers(text: str) -> tuple[int, ...]:
    # A shape; ``CorruptModelError`` if it is none.
    try:
        return tuple(int(n) for n in text.replace("\n", " ").split(",") if n.strip())
    except ValueError as error:
        raise CorruptModelError(f"{text.strip()[:40]!r} is not a shape") from error
