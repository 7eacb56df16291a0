"""Parameters of a layer for a function that layers share: a struct in a header of the runtime."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

import numpy as np

from crtgen.base.resources import runtime_dir
from crtgen.compiler.kernels.engine.kernel import Const

__all__ = ["places_in", "table"]


@cache
def places_in(header: str) -> Mapping[str, int]:
    """Return the byte offset of each member of ``struct crt_<header>_table`` in ``crt/<header>.h``."""
    text = (runtime_dir() / "include" / "crt" / f"{header}.h").read_text(encoding="utf-8")
    (body,) = re.findall(rf"struct crt_{header}_table {{(.*?)}};", text, re.DOTALL)
    places, at = {}, 0
    for name, length in re.findall(r"int32_t (\w+)(?:\[(\d*)\])?;", body):
        places[name] = at
        at += 4 * int(length or 1)
    return MappingProxyType(places)


def table(header: str, numbers: Mapping[str, int | Sequence[int]], last: str = "") -> Const:
    """Return the table of these numbers, given in any order; it ends with ``last``, if that is given.

    Raises ``ValueError`` if the struct has other members.
    """
    names = [*places_in(header)]
    if set(names) != set(numbers):
        raise ValueError(f"crt/{header}.h: {sorted(set(names) ^ set(numbers))}")
    end = names.index(last) + 1 if last else len(names)
    data = np.concatenate([np.ravel(np.array(numbers[name], np.int64)) for name in names[:end]])
    return Const.of("table", data.astype(np.int32), 4, "the layer's numbers, see the code")
