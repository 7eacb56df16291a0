"""An example generator with a representation of its own, ExampleJSON, stored in the C runtime as static
tables.

The representation is text (``example_json``). It is read on the host; the device gets a table of operators
and a loop over it.
"""

from collections.abc import Collection, Mapping
from typing import ClassVar, Self

from crtgen.base.errors import UsageError
from crtgen.compiler.byoc import arithmetic
from crtgen.compiler.byoc.example_json import (
    OPERATORS,
    ExampleGraph,
    ExampleNode,
    read_example_json,
    write_example_json,
)
from crtgen.compiler.byoc.generator import Generated, Generator, Pattern
from crtgen.compiler.kernels.engine.kernel import Const, Target
from crtgen.network.ir import DType, Graph, Op, Signature, Value
from crtgen.network.ops import Add, Mul, Sub

__all__ = ["ExampleJson", "to_example_json"]

_MOST_NODES = 0xFFFF


class ExampleJson(Generator):
    """Arithmetic on tensors of one shape, without broadcasting; all operators, or only those in
    ``operators``.
    """

    name = "examplejson"
    patterns: ClassVar[tuple[Pattern, ...]] = ((Add,), (Sub,), (Mul,))
    merges: ClassVar[bool] = True

    def __init__(self, operators: Collection[str] = OPERATORS) -> None:
        self.operators = frozenset(operators)

    @classmethod
    def create(cls, options: Mapping[str, str]) -> Self:
        cls.refuse_unknown(options, ["operators"], "docs/byoc.md lists its options")
        operators = options.get("operators", "+".join(OPERATORS)).split("+")
        if not set(operators) <= set(OPERATORS):
            raise UsageError(
                f"the generator supports only the operators {', '.join(OPERATORS)}",
                where=cls.name,
                hint="name some of these in its option",
            )
        return cls(operators)

    def reason(self, op: Op, sig: Signature) -> str:
        if op.name in OPERATORS and op.name not in self.operators:
            return f"it is to do {'+'.join(sorted(self.operators))} only"
        if any(value.shape != sig.y.shape for value in sig.inputs):
            return "its operands have different shapes"
        return arithmetic.reason(op, sig)

    def reason_as_a_whole(self, subgraph: Graph) -> str:
        if len(subgraph.outputs) != 1:
            return "it has several outputs"
        return "it has too many nodes" if len(subgraph.values) > _MOST_NODES else ""

    def generate(self, subgraph: Graph, target: Target) -> Generated:
        text = to_example_json(subgraph)
        (graph,) = read_example_json(text, self.name)
        output = subgraph.values[subgraph.outputs[0]]
        constants = _constants(subgraph)
        names = [*(f"x{i}" for i in range(len(subgraph.inputs))), *(f"c{i}" for i in range(len(constants)))]
        calls = [node for node in graph.nodes if node.op != "input"]
        rows = [
            f"        {{{OPERATORS.index(n.op)}, {n.inputs[0]}, {n.inputs[1]}}}, /* {n.op} */" for n in calls
        ]
        element, scratch = output.dtype.c_name, (len(calls) - 1) * output.nbytes
        memory = f"({element} *)(void *)scratch" if scratch else "NULL"
        lines = [
            f"    static const struct examplejson_{element}_node nodes[] = {{",
            *rows,
            "    };",
            f"    const {element} *const inputs[] = {{{', '.join(names)}}};",
            f"    examplejson_{element}(nodes, {len(calls)}, inputs, {len(names)},",
            f"        y0, {memory}, {output.elements});",
        ]
        return Generated(
            body="\n".join(lines),
            consts=tuple(Const.of(f"c{i}", v.array()) for i, v in enumerate(constants)),
            scratch=scratch,
            support=_support(output.dtype),
        )


def to_example_json(subgraph: Graph, name: str = "subgraph") -> str:
    """Return the text of a subgraph: its inputs, its constants as additional inputs, its nodes."""
    numbers: dict[str, int] = {}
    nodes: list[ExampleNode] = []
    for value in (*(subgraph.values[n] for n in subgraph.inputs), *_constants(subgraph)):
        numbers[value.name] = len(nodes)
        nodes.append(ExampleNode("input", (), value.shape))
    for node in subgraph.nodes:
        (output,) = node.outputs
        numbers[output] = len(nodes)
        inputs = tuple(numbers[n] for n in node.inputs)
        nodes.append(ExampleNode(node.op.name, inputs, subgraph.values[output].shape))
    return write_example_json((ExampleGraph(name, tuple(nodes)),))


def _constants(subgraph: Graph) -> list[Value]:
    return [v for v in subgraph.values.values() if v.is_constant]


def _support(dtype: DType) -> str:
    # The table's row and the loop over it, for one type of element.
    element = dtype.c_name
    cases = "\n".join(
        f"            {'if' if i == 0 else '} else if'} (node->op == {i}) {{\n"
        f"                y[e] = {arithmetic.expression(op, dtype, 'a[e]', 'b[e]')};"
        for i, op in enumerate(OPERATORS)
    )
    return f"""\
/* An operator of ExampleJSON and the numbers of its inputs: first the subgraph's own, then results. */
struct examplejson_{element}_node {{
    uint16_t op;
    uint16_t a;
    uint16_t b;
}};

/* Every operator on `elements` elements; the last result is the output, the others lie in `memory`. */
static void examplejson_{element}(const struct examplejson_{element}_node *nodes, uint32_t count,
    const {element} *const *inputs, uint32_t own, {element} *output, {element} *memory, uint32_t elements)
{{
    for (uint32_t i = 0; i < count; i++) {{
        const struct examplejson_{element}_node *node = &nodes[i];
        const {element} *a = node->a < own ? inputs[node->a] : memory + (node->a - own) * elements;
        const {element} *b = node->b < own ? inputs[node->b] : memory + (node->b - own) * elements;
        {element} *y = i + 1 == count ? output : memory + i * elements;
        for (uint32_t e = 0; e < elements; e++) {{
{cases}
            }}
        }}
    }}
}}"""
