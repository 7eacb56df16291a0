"""Random networks: every plan is checked, and tiny ones are compared with brute force."""

from itertools import permutations
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crtgen.compiler.kernels.engine.kernel import InPlace
from crtgen.compiler.plan import Plan, Spread, Step, make_plan
from tests.compiler.plan.fakes import Net, kernel, node

SIZES = st.sampled_from([1, 4, 7, 16, 30, 33, 64, 100])


@st.composite
def nets(draw: st.DrawFn, most: int = 12) -> Net:
    """A network of up to ``most`` nodes that read any earlier values; some in place, some aliases."""
    sizes = {f"x{i}": draw(SIZES) for i in range(draw(st.integers(1, 2)))}
    inputs = dict(sizes)
    specs = []
    for i in range(draw(st.integers(1, most))):
        reads = draw(st.lists(st.sampled_from(list(sizes)), min_size=1, max_size=3))
        if draw(st.integers(0, 5)) == 0:
            outputs, k = {f"v{i}": sizes[reads[0]]}, kernel(alias=True)
        else:
            outputs = {f"v{i}_{o}": draw(SIZES) for o in range(draw(st.integers(1, 2)))}
            over = [
                InPlace(a, b, draw(st.sampled_from([0, 0, 5, 32])))
                for a in range(len(reads))
                for b in range(len(outputs))
                if draw(st.booleans())
            ]
            k = kernel(*over, scratch=draw(st.sampled_from([0, 0, 20])))
        sizes.update(outputs)
        specs.append(node(f"n{i}", " ".join(reads), outputs, k))
    ends = draw(st.lists(st.sampled_from(list(sizes)), min_size=1, max_size=2, unique=True))
    return Net(inputs, " ".join(ends), *specs)


@settings(max_examples=150, deadline=None)
@given(nets(), st.booleans(), st.sampled_from([1, 4, 16]))
def test_every_plan_is_right_and_not_below_its_bound(net: Net, keep: bool, align: int) -> None:
    plan = make_plan(net.graph, net.kernels, keep_inputs=keep, align=align)
    assert plan.lower_bound <= plan.arena
    assert plan.optimal or plan.lower_bound < plan.arena


@settings(max_examples=150, deadline=None)
@given(nets(), st.booleans(), st.sampled_from([1, 16]), st.sampled_from([2, 3]), st.randoms())
def test_every_plan_in_several_memories_is_right(
    net: Net, keep: bool, align: int, memories: int, random: Random
) -> None:
    """``make_plan`` proves each plan byte by byte; here values and scratch are spread at random."""
    names = ["", "fast", "slow"][:memories]
    values = {name: random.choice(names) for name in net.graph.values}
    scratch = {n.name: random.choice(names) for n in net.graph.nodes}
    plan = make_plan(net.graph, net.kernels, keep_inputs=keep, align=align, spread=Spread(values, scratch))
    whole = make_plan(net.graph, net.kernels, keep_inputs=keep, align=align)
    assert plan.lower_bound <= plan.arena
    assert set(plan.parts) <= set(names)
    for part in plan.parts.values():
        assert part.lower_bound <= part.size
        assert part.optimal or part.lower_bound < part.size
    assert (
        max(plan.arena, *(part.size for part in plan.parts.values()), 0) <= whole.arena or not whole.optimal
    )
    for step in plan.steps:
        if step.scratch is not None:
            assert step.scratch.part == scratch[step.name]


@settings(max_examples=60, deadline=None)
@given(nets(most=3))
def test_the_least_arena_is_that_of_brute_force(net: Net) -> None:
    plan = make_plan(net.graph, net.kernels, align=16)
    search = _Search(plan)
    assume(len(search.items) <= 7)
    assert plan.arena == search.least()


@settings(max_examples=60, deadline=None)
@given(nets(most=5), st.booleans())
def test_the_order_has_the_least_bound_of_all_orders(net: Net, keep: bool) -> None:
    """Brute force over all orders of the nodes, by the peak in units of one byte."""
    plan = make_plan(net.graph, net.kernels, keep_inputs=keep, align=1)
    orders = [o for o in permutations(net.graph.nodes) if runs(net, [n.name for n in o])]
    assert plan.lower_bound == min(peak(net, [n.name for n in o], keep) for o in orders)


def runs(net: Net, order: list[str]) -> bool:
    known = set(net.graph.inputs)
    for name in order:
        n = next(n for n in net.graph.nodes if n.name == name)
        if not known.issuperset(n.inputs):
            return False
        known.update(n.outputs)
    return True


def peak(net: Net, order: list[str], keep: bool) -> int:
    """The least bound of an order: that of the same nodes in a graph that allows no other order."""
    table = {n.name: n for n in net.graph.nodes}
    root = {name: name for name in net.graph.inputs}
    last: dict[str, int] = {name: 0 for name in net.graph.inputs}
    first = dict(last)
    for moment, name in enumerate(order, start=1):
        n = table[name]
        for value in n.inputs:
            last[root[value]] = moment
        for value in n.outputs:
            root[value] = root[n.inputs[0]] if net.kernels[name].is_alias else value
            if root[value] == value:
                first[value] = last[value] = moment
    for value in (*net.graph.outputs, *(net.graph.inputs if keep else ())):
        last[root[value]] = len(order) + 1
    size = {value: net.graph.values[value].nbytes for value in first}
    result = 0
    for moment in range(len(order) + 2):
        need = sum(size[v] for v in first if first[v] <= moment <= last[v])
        if 1 <= moment <= len(order):
            k, n = net.kernels[order[moment - 1]], table[order[moment - 1]]
            need += k.scratch
            if not k.is_alias:
                need -= saved(net, n.name, {v for v in first if last[v] == moment}, root, size)
        result = max(result, need)
    return result


def saved(net: Net, name: str, dying: set[str], root: dict[str, str], size: dict[str, int]) -> int:
    n = next(n for n in net.graph.nodes if n.name == name)
    permits = {(p.output, p.input): p.lead for p in net.kernels[name].inplace}
    rows: dict[str, int] = {}
    columns: dict[str, int] = {}
    for o, output in enumerate(n.outputs):
        for place in {root[i] for i in n.inputs} & dying:
            positions = [i for i, value in enumerate(n.inputs) if root[value] == place]
            if all((o, i) in permits for i in positions):
                lead = max(permits[o, i] for i in positions)
                gain = max(0, min(size[place], size[output] - lead))
                rows[output] = rows.get(output, 0) + gain
                columns[place] = columns.get(place, 0) + gain
    return min(sum(min(size[v], g) for v, g in t.items()) for t in (rows, columns))


class _Search:
    """The least arena for a plan's order: each item is tried at every multiple of the alignment."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.items: list[tuple[int, int, int]] = []  # bytes, first moment, last moment
        self.leave: dict[tuple[int, int], int] = {}
        number: dict[str, int] = {}
        for name in plan.graph.inputs:
            number[name] = self.add(plan.slots[name].size, 0)
        for moment, step in enumerate(plan.steps, start=1):
            for name in step.inputs:
                self.extend(number[name], moment)
            if step.kernel.is_alias:
                number[step.outputs[0]] = number[step.inputs[0]]
                continue
            for name in step.outputs:
                number[name] = self.add(plan.slots[name].size, moment)
            if step.scratch:
                self.add(step.scratch.size, moment)
            self.allow(step, number)
        for name in plan.graph.outputs:
            self.extend(number[name], len(plan.steps) + 1)

    def allow(self, step: Step, number: dict[str, int]) -> None:
        permits = {(p.output, p.input): p.lead for p in step.kernel.inplace}
        for o, output in enumerate(step.outputs):
            for place in {number[i] for i in step.inputs}:
                where = [i for i, value in enumerate(step.inputs) if number[value] == place]
                if all((o, i) in permits for i in where):
                    self.leave[number[output], place] = max(permits[o, i] for i in where)

    def add(self, size: int, moment: int) -> int:
        self.items.append((size, moment, moment))
        return len(self.items) - 1

    def extend(self, item: int, moment: int) -> None:
        size, first, _ = self.items[item]
        self.items[item] = (size, first, moment)

    def apart(self, i: int, at_i: int, j: int, at_j: int) -> bool:
        (size_i, first_i, last_i), (size_j, first_j, last_j) = self.items[i], self.items[j]
        if last_i < first_j or last_j < first_i:
            return True
        if at_i + size_i <= at_j or at_j + size_j <= at_i:
            return True
        if last_i == first_j and (j, i) in self.leave:
            return at_j + self.leave[j, i] <= at_i
        if last_j == first_i and (i, j) in self.leave:
            return at_i + self.leave[i, j] <= at_j
        return False

    def least(self) -> int:
        self.best = sum(-(-size // 16) * 16 for size, *_ in self.items) + 1
        self.place([], 0)
        return self.best

    def place(self, offsets: list[int], arena: int) -> None:
        if len(offsets) == len(self.items):
            self.best = min(self.best, arena)
            return
        i = len(offsets)
        for offset in range(0, self.best, 16):
            top = max(arena, offset + self.items[i][0])
            if top >= self.best or top > self.plan.arena:
                return
            if all(self.apart(i, offset, j, at) for j, at in enumerate(offsets)):
                self.place([*offsets, offset], top)
