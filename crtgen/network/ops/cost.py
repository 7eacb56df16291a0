"""Cost of evaluating an operator by its reference. The budget is asked before the reference runs."""

from crtgen.base import budget
from crtgen.network.ir import Graph, Op, Signature

__all__ = ["ask_for", "cost_of"]

# Operations for an element that is read, written, or held between.
_PER_ELEMENT = 4

# Bytes of one: most references compute in double.
_ELEMENT = 8


def ask_for(op: Op, sig: Signature) -> None:
    """Ask the budget for evaluating ``op`` on constants. Raises ``UnsupportedError`` if it is too
    expensive.
    """
    spending = budget.current()
    spending.compute(_cost(op, sig), "computing constants")
    spending.hold(_ELEMENT * op.working_elements(sig), "computing a constant")
    spending.take(sum(value.nbytes for value in sig.outputs), "a constant")


def cost_of(graph: Graph) -> int:
    return sum(_cost(node.op, graph.signature(node)) for node in graph.nodes)


def _cost(op: Op, sig: Signature) -> int:
    return budget.CALL + op.work(sig) + _PER_ELEMENT * op.working_elements(sig)
