"""Short, readable, unique names from the long ones that training tools write."""

import re
from collections import Counter

__all__ = ["Names", "identifier", "layer_name"]

_MAX_LENGTH = 40


def identifier(text: str, default: str) -> str:
    """Return ``text`` as a lower-case C identifier of at most 40 characters, without TensorFlow's
    decorations.
    """
    plain = re.sub(
        r"^(serving_default_|StatefulPartitionedCall|PartitionedCall)|:\d+$", "", text.split(";")[0]
    )
    word = re.sub(r"[^0-9A-Za-z]+", "_", plain).strip("_")[-_MAX_LENGTH:].strip("_").lower()
    if not word:
        return default
    return f"{default}_{word}" if word[0].isdigit() else word


class Names:
    """Creates unique names: a name that is already used gets a numeric suffix."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: Counter[str] = Counter()

    def unique(self, name: str) -> str:
        candidate = name
        while candidate in self._taken:
            self._counts[name] += 1
            candidate = f"{name}_{self._counts[name]}"
        self._taken.add(candidate)
        return candidate


def layer_name(tensor: str, stems: tuple[str, ...], operator: str = "") -> str:
    """Return a layer's name from its tensor's: the most frequent part that begins with one of ``stems``.

    ``model/activation/Relu;model/conv2d_3/BiasAdd;model/conv2d_3/Conv2D`` gives ``conv2d_3`` for the stem
    ``conv2d``. Without such a part the name is that of the ``operator``, else the first stem.
    """
    parts = [
        p
        for p in re.split(r"[;/:]", f"{operator};{tensor}")
        if re.fullmatch(r"[a-z][a-z0-9_]*", p) and p.startswith(stems)
    ]
    if not parts:
        return identifier(operator, stems[0])
    return Counter(parts).most_common(1)[0][0][:_MAX_LENGTH]
