"""Constants that several layers have in common, such as the weights of an unrolled recurrent layer.

An array is in flash once for each layout. Packing all arrays to compare them would take as long as writing
them. So arrays are packed for comparison only if their layers read an equal constant of the network, which is
detected by its digest.
"""

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterator
from functools import lru_cache

from crtgen.compiler.kernels.engine.kernel import Const
from crtgen.compiler.plan import Branch, Plan, Step, WhileLoop
from crtgen.network.ir import Array

__all__ = ["constants_bytes", "layers_with_twins", "packed_key"]

_LEAST = 64  # bytes of a constant that is worth a comparison


def layers_with_twins(plan: Plan) -> frozenset[str]:
    reads = {step.name: frozenset(_digests(inner, step)) for inner in _plans(plan) for step in inner.steps}
    uses = Counter(digest for found in reads.values() for digest in found)
    return frozenset(name for name, found in reads.items() if any(uses[digest] > 1 for digest in found))


def _plans(plan: Plan) -> Iterator[Plan]:
    # The plan, and those of the subgraphs that it runs.
    yield plan
    for step in plan.steps:
        for inner in step.item.plans if isinstance(step.item, Branch | WhileLoop) else ():
            yield from _plans(inner)


def _digests(plan: Plan, step: Step) -> Iterator[bytes]:
    for value in plan.signature(step).inputs:
        if value.data is not None and value.nbytes >= _LEAST:
            yield _digest(value.data)


@lru_cache(maxsize=8)
def constants_bytes(plan: Plan) -> int:
    """Return the bytes of all arrays of a plan, each counted once."""
    twins = layers_with_twins(plan)
    shared: dict[Hashable, int] = {}
    alone = 0
    for step in plan.all_steps():
        if step.name in twins:
            shared |= {packed_key(const): const.nbytes for const in step.kernel.consts}
        else:
            alone += step.kernel.cost.constants
    return alone + sum(shared.values())


def packed_key(const: Const) -> Hashable:
    """Return a key that is equal for constants with equal elements, type and alignment."""
    return const.dtype, const.shape, const.align, _digest(const.data)


def _digest(data: Array) -> bytes:
    return hashlib.blake2b(data.tobytes(), digest_size=16).digest()
