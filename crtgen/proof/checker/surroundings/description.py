"""The description of a model, for an application and for a host: its tensors, and the model's entry among
those of the image.

The problem. A host sends its data to the addresses in the description, and calls the function that it names.
If a shape has two dimensions exchanged, if a pointer belongs to another model, or if the names of two inputs
are exchanged, then a correct network answers the wrong question.

All of it is constant: it is read from the loaded segments and compared with the network's file, and with the
addresses that the proof covers. The generator derives names from those in the file; a name must have the
letters of its own tensor's name, unless the generator would not keep that name.
"""

import re
from collections.abc import Iterator, Sequence

from crtgen.proof.checker.binary.image import DecodedImage, image_bytes
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.places import BOTH, places, size_of

__all__ = ["compare_description", "is_name_of", "tensor_spans"]

_TENSOR, _MODEL = 24, 44
"""Sizes of ``crt_tensor``: name, data, shape, bytes, dimensions, type; and of ``crt_model``."""
_INT, _UINT, _FLOAT = 0, 1, 2
_CONSUMES_INPUTS = 1
_MOST_DIMENSIONS, _LONGEST, _LONG = 16, 64, 24


def compare_description(image: DecodedImage, network: Network, name: str, keeps_inputs: bool) -> bool:
    """Compare an image's description of a model with the network and its addresses; return False if it has
    none.

    ``keeps_inputs``: a run leaves the inputs unchanged. Raises ``Refusal`` for the first difference.
    """
    file = network.file
    described = True
    for which, tensors in (("input", file.inputs), ("output", file.outputs)):
        at = places(image, network, name, which)
        first, end = (
            image.span(f"{name}_{which}_tensors") if f"{name}_{which}_tensors" in image.symbols else (0, 0)
        )
        if end - first == _TENSOR * len(tensors):
            for k, tensor in enumerate(tensors):
                _compare_tensor(_words(image, first + _TENSOR * k, _TENSOR), image, network, which, k, tensor)
        else:
            described = False
        pointers = f"{name}_{which}_places"
        if pointers in image.symbols and _words(image, image.symbols[pointers], 4 * len(at)) != at:
            raise Refusal(f"{pointers} are not the places of the network's {which}s")
    if f"{name}_model" in image.symbols and described:
        _compare_model(image, network, name, keeps_inputs)
    return described


def _words(image: DecodedImage, at: int, size: int) -> list[int]:
    data = image_bytes(image, at, size)
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, size, 4)]


def _compare_tensor(
    words: Sequence[int], image: DecodedImage, network: Network, which: str, k: int, tensor: int
) -> None:
    file = network.file
    text, _, at, size, dimensions, kind = words
    shape = image_bytes(image, at, 8 * dimensions) if dimensions < _MOST_DIMENSIONS else b""
    numbers = tuple(int.from_bytes(shape[i : i + 8], "little") for i in range(0, len(shape), 8))
    own = file.kind(tensor)
    code = _FLOAT if file.is_real(tensor) else _UINT if own.low == 0 else _INT
    said = size, numbers, kind & 0xFF, kind >> 8 & 0xFF, kind >> 16
    given = (which == "input" and network.given_shape) or tuple(file.shape(tensor))
    wanted = size_of(network, which, tensor) * own.bits // 8, given, code, own.bits, 1
    if said != wanted:
        raise Refusal(f"the description of {which} {k} says {said}, the network {wanted}")
    name, real = _text(image, text), file.name(tensor)
    if not is_name_of(name, real, which) and (which == "input" or ";" not in real):
        raise Refusal(f"the description of {which} {k} has the name {name!r}, the file {real!r}")


def _text(image: DecodedImage, at: int) -> str:
    # The bytes up to a 0. Raises ``Refusal`` where they are no name.
    found = bytearray()
    while len(found) <= _LONGEST:
        (byte,) = image_bytes(image, at + len(found), 1)
        if not byte:
            break
        found.append(byte)
    if not re.fullmatch(rb"\w{1,64}", found):
        raise Refusal(f"the description has no name at {at:#x}, but {bytes(found)!r}")
    return found.decode()


def _letters(text: str) -> str:
    return re.sub("[^0-9a-z]", "", text.lower())


def is_name_of(name: str, real: str, which: str) -> bool:
    """Return True if a generator may have made the name from the tensor's own.

    It drops what converters add, cuts what is long, and adds what makes a name unique or an identifier.
    Tensors without a name are numbered.
    """
    plain = re.sub(r"^(serving_default_|(Stateful)?PartitionedCall)|:\d+$", "", real.split(";")[0])
    wanted = _letters(plain)
    for text in (name, re.sub(r"_\d+$", "", name)):
        for part in (text, re.sub(rf"^{which}\d*(_|$)", "", text)):
            letters = _letters(part)
            if letters == wanted or (len(letters) >= _LONG and wanted.endswith(letters)):
                return True
    return False


def _compare_model(image: DecodedImage, network: Network, name: str, keeps_inputs: bool) -> None:
    # The entry of the model: what a server goes by.
    file, symbols = network.file, image.symbols
    words = _words(image, symbols[f"{name}_model"], _MODEL)
    text, run, reset, inputs, outputs, counts, flags, arena, size, recorder, drift = words
    said, (first, end) = _text(image, text), image.arena(name)
    resets = symbols.get(f"{name}_reset", 0) | 1 if network.states or network.slides else 0
    tensors = [symbols[f"{name}_{which}_tensors"] for which in BOTH]
    for is_right, what in (
        (_letters(said) == _letters(name), f"has the name {said!r}"),
        (run == symbols[f"{name}_compute"] | 1, f"runs another function than {name}_compute"),
        (reset == resets, f"has {reset:#x} as the function that resets states, not {resets:#x}"),
        ([inputs, outputs] == tensors, "has the tensors of another model"),
        (
            counts == len(file.inputs) | len(file.outputs) << 16,
            "has another number of inputs or outputs than the network",
        ),
        (
            keeps_inputs or flags >> 16 & _CONSUMES_INPUTS,
            "says that a run keeps the inputs, and it does not",
        ),
        (not arena or first <= arena <= arena + size <= end, "has another arena than the network"),
        (recorder in (0, symbols.get(f"{name}_recorder")), f"has {recorder:#x} as its recorder"),
        (drift in (0, symbols.get(f"{name}_drift_reference")), f"has {drift:#x} as its drift_reference"),
        (_is_listed(image, symbols[f"{name}_model"]), "is not among the models of the image"),
    ):
        if not is_right:
            raise Refusal(f"{name}_model {what}")


def tensor_spans(image: DecodedImage) -> Iterator[tuple[int, int]]:
    """Yield the first address and the end of each tensor that the image's models have."""
    (count,) = _words(image, image.symbols["crt_num_models"], 2)
    for model in _words(image, image.symbols["crt_models"], 4 * count):
        words = _words(image, model, _MODEL)
        for first, number in ((words[3], words[5] & 0xFFFF), (words[4], words[5] >> 16)):
            for k in range(number):
                _, at, _, size, *_ = _words(image, first + _TENSOR * k, _TENSOR)
                yield at, at + size


def _is_listed(image: DecodedImage, model: int) -> bool:
    # True if the image has no list, or the model is on it.
    models, count = (image.symbols.get(symbol) for symbol in ("crt_models", "crt_num_models"))
    if models is None or count is None:
        return True
    number = int.from_bytes(image_bytes(image, count, 2), "little")
    return model in _words(image, models, 4 * number)
