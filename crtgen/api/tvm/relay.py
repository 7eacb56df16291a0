"""The Relay text of an archive: the network that TVM compiled.

The text has the operators and the types and scales of tensors. It leaves out the values of constants
(``meta[relay.Constant]``), among them the scales of channels; parameters are only named.
"""

import re
from collections import Counter
from dataclasses import dataclass
from math import prod

__all__ = ["Relay", "Tensor", "read_relay", "size_of"]

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_MAIN = re.compile(r"def @main\((.*?)\)\s*(?:->[^{]*)?\{", re.DOTALL)
_ARGUMENT = re.compile(r"%([^\s:,()]+)\s*:\s*Tensor\[\(([\d, ]*)\),\s*(\w+)\]")
_CALL = re.compile(r"(?:= |^\s*)([a-z][\w.]*)\(", re.MULTILINE)
_HIDDEN = re.compile(r"meta\[relay\.Constant\]\[(\d+)\]")
_REAL, _ZERO = r"(-?[\d.]+(?:e[+-]?\d+)?)f", r"(-?\d+)"
_SCALE = re.compile(
    rf"qnn\.requantize\([^,]+,[^,]+,[^,]+,\s*{_REAL}\s*,\s*{_ZERO}"
    rf"|qnn\.(?:de)?quantize\([^,]+,\s*{_REAL}\s*,\s*{_ZERO}"
)

Tensor = tuple[tuple[int, ...], str]
"""Shape and element type."""


@dataclass(frozen=True, slots=True)
class Relay:
    """A network as the Relay text describes it.

    ``arguments`` are inputs and parameters by name, ``operators`` counts the calls of each operator,
    ``scales`` are the scales (with six digits) and zero points of tensors. ``hidden`` counts constants whose
    values the text omits.
    """

    arguments: dict[str, Tensor]
    operators: Counter[str]
    scales: frozenset[tuple[str, int]]
    hidden: int


def read_relay(text: str) -> Relay:
    """Parse Relay text; any other text gives an empty result."""
    plain = _COMMENT.sub("", text)
    main = _MAIN.search(plain)
    arguments = _ARGUMENT.findall(main[1]) if main else []
    found = (match for match in _SCALE.finditer(plain))
    pairs = ((m[1], m[2]) if m[1] is not None else (m[3], m[4]) for m in found)
    return Relay(
        {
            name: (tuple(int(d) for d in shape.split(",") if d.strip()), dtype)
            for name, shape, dtype in arguments
        },
        Counter(_CALL.findall(plain[main.end() :] if main else "")),
        frozenset((f"{float(scale):.6g}", int(zero)) for scale, zero in pairs),
        len(set(_HIDDEN.findall(plain))),
    )


def size_of(tensor: Tensor) -> tuple[int, str]:
    """Return the count and type of elements, which do not change with the layout."""
    return prod(tensor[0]), tensor[1]
