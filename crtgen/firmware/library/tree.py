"""The tree of modules: its order, the merging of DSO modules, and the checks of the whole tree.

The import tree is stored as CSR: the children of group ``i`` are
``child_indices[row_ptr[i]:row_ptr[i + 1]]``. The root is group 0, a parent comes before its children.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crtgen.base.errors import ModelError, UnsupportedError
from crtgen.firmware.library.module import MergedModule, Module

__all__ = ["ImportTree", "check_crt_exportable", "check_symbols", "import_tree", "walk"]


@dataclass(frozen=True, slots=True)
class ImportTree:
    """Modules in groups, all DSO modules in one group, and the imports between groups."""

    groups: tuple[tuple[Module, ...], ...]
    row_ptr: tuple[int, ...]
    child_indices: tuple[int, ...]

    def children(self, group: int) -> tuple[int, ...]:
        return self.child_indices[self.row_ptr[group] : self.row_ptr[group + 1]]


def walk(root: Module) -> tuple[Module, ...]:
    """Return every module once, depth first, the root at index 0."""
    order: list[Module] = []
    seen: set[Module] = set()
    stack = [root]
    while stack:
        module = stack.pop()
        if module not in seen:
            seen.add(module)
            order.append(module)
            stack += reversed(module.imports)
    return tuple(order)


def import_tree(root: Module) -> ImportTree:
    """Return the tree as a module blob stores it. If merging creates a cycle, it is refused, naming the types
    on it.
    """
    modules = walk(root)
    dso = tuple(m for m in modules if m.is_dso_exportable)
    group_of = {m: (dso if m in dso else (m,)) for m in modules}
    children = {
        group: _unique(group_of[i] for m in group for i in m.imports if group_of[i] != group)
        for group in _unique(iter(group_of.values()))
    }
    order = _topological(group_of[root], children)
    index = {group: i for i, group in enumerate(order)}
    rows = [sorted(index[child] for child in children[group]) for group in order]
    row_ptr = [0]
    for row in rows:
        row_ptr.append(row_ptr[-1] + len(row))
    return ImportTree(order, tuple(row_ptr), tuple(i for row in rows for i in row))


_Group = tuple[Module, ...]


def _unique(groups: Iterator[_Group]) -> tuple[_Group, ...]:
    return tuple(dict.fromkeys(groups))


def _topological(root: _Group, children: Mapping[_Group, Sequence[_Group]]) -> tuple[_Group, ...]:
    # Depth first from the root, every group after all its parents.
    done: list[_Group] = []
    path: dict[_Group, Iterator[_Group]] = {root: iter(tuple(reversed(children[root])))}
    while path:
        group, rest = next(reversed(path.items()))
        child = next(rest, None)
        if child is None:
            done.append(group)
            path.pop(group)
        elif child in path:
            raise UnsupportedError(_cycle_text(list(path), child), hint="export these modules separately")
        elif child not in done:
            path[child] = iter(tuple(reversed(children[child])))
    return tuple(reversed(done))


def _cycle_text(path: Sequence[_Group], back_to: _Group) -> str:
    cycle = [*path[path.index(back_to) :], back_to]
    types = " -> ".join("/".join(dict.fromkeys(m.key for m in group)) for group in cycle)
    names = ", ".join(m.name for group in cycle[:-1] for m in group)
    return f"merging the modules that can be linked makes a cycle of imports: {types} (modules {names})"


def check_symbols(root: Module) -> None:
    owner: dict[str, Module] = {}
    for module in walk(root):
        for name in module.get_func_names():
            if name in owner:
                first = owner[name].name
                where = "twice" if owner[name] is module else f"and in {first}"
                raise ModelError(f"the function {name} is defined {where}", where=module.name)
            owner[name] = module


def check_crt_exportable(modules: Iterable[Module]) -> None:
    """Refuse the first module that cannot be part of a static C runtime, naming its symbols."""
    for module in modules:
        for part in module.members if isinstance(module, MergedModule) else (module,):
            if not part.is_crt_exportable:
                raise _refusal(part)


def _refusal(module: Module) -> UnsupportedError:
    symbols = ", ".join(dict.fromkeys(filter(None, (module.get_symbol(), *module.get_func_names()))))
    what = f"the {module.key} module with {symbols}" if symbols else f"the {module.key} module"
    if not module.is_dso_exportable:
        reason, hint = "it can be neither compiled nor linked", "build that part of the network for the CPU"
    else:
        consts = ", ".join(module.get_const_vars())
        reason = f"a start-up step would have to load its constants {consts}"
        hint = "link the parameters when exporting"
    return UnsupportedError(f"{what} cannot run on the C runtime: {reason}", where=module.name, hint=hint)
