"""The module blob, content of the symbol ``__tvm_dev_mblob``: a tree of modules as TVM serialises it.

Format: formats.md, section 4. A u64 length, then a stream: a count, groups (a type key and a body each), and
``_import_tree`` unless the root is a single DSO module without a tree.
"""

from collections.abc import Sequence
from dataclasses import replace

from crtgen.base.errors import CorruptModelError
from crtgen.firmware.library.loaders import KNOWN_LOADERS, read_body, write_body
from crtgen.firmware.library.module import MergedModule, Module
from crtgen.firmware.library.stream import StreamReader, StreamWriter
from crtgen.firmware.library.tree import ImportTree, import_tree

__all__ = ["read_blob", "write_blob"]

_LIB = "_lib"
_TREE = "_import_tree"


def write_blob(root: Module) -> bytes:
    """Return the blob of a module and its imports; DSO modules are merged, and only their key is stored."""
    tree = import_tree(root)
    writer = StreamWriter()
    if tree.groups == ((root,),) and root.is_dso_exportable:
        writer.u64(0)
    else:
        writer.u64(len(tree.groups) + 1)
        for group in tree.groups:
            writer.string(_LIB if group[0].is_dso_exportable else group[0].key)
            if not group[0].is_dso_exportable:
                write_body(writer, group[0])
        writer.string(_TREE)
        writer.vector(tree.row_ptr, writer.u64)
        writer.vector(tree.child_indices, writer.u64)
    stream = writer.getvalue()
    return len(stream).to_bytes(8, "little") + stream


def read_blob(data: bytes, members: Sequence[Module] = (), where: str = "__tvm_dev_mblob") -> Module:
    """Return the root of the tree in a blob; ``members`` are the DSO modules that were stored beside it."""
    outer = StreamReader(data, where)
    length = outer.u64("the length")
    if length != outer.left:
        raise outer.fail(f"the blob says {length} bytes and has {outer.left}")
    reader = StreamReader(data[8:], where)
    modules, tree = _read_groups(reader, MergedModule(name=_LIB, members=tuple(members)))
    reader.end()
    return _link(modules, tree)


def _read_groups(reader: StreamReader, lib: Module) -> tuple[list[Module], ImportTree]:
    modules: list[Module] = []
    count = reader.count("modules", 8)
    for i in range(count):
        key = reader.text("a type key")
        if key == _TREE:
            if i != count - 1:
                raise reader.fail(f"{_TREE} is followed by {count - 1 - i} more modules")
            return modules, _read_tree(reader, len(modules))
        if key != _LIB:
            modules.append(read_body(reader, key, name=f"{key}{i}"))
        elif lib in modules:
            raise CorruptModelError(f"{_LIB} occurs twice", hint=f"known loaders: {KNOWN_LOADERS}")
        else:
            modules.append(lib)
    if lib in modules:
        raise reader.fail(f"{_LIB} stands in a blob without {_TREE}")
    children = tuple(range(1, len(modules) + 1))
    row_ptr = (0, *[len(modules)] * (len(modules) + 1))
    return [lib, *modules], ImportTree((), row_ptr, children)


def _read_tree(reader: StreamReader, count: int) -> ImportTree:
    row_ptr, children = reader.u64s("row pointers"), reader.u64s("child indices")
    if count == 0 or len(row_ptr) != count + 1:
        raise reader.fail(f"{len(row_ptr)} row pointers for {count} modules")
    if (row_ptr[0], row_ptr[-1]) != (0, len(children)) or list(row_ptr) != sorted(row_ptr):
        raise reader.fail(f"the row pointers {list(row_ptr)} do not fit {len(children)} child indices")
    tree = ImportTree((), row_ptr, children)
    for parent in range(count):
        row = tree.children(parent)
        if list(row) != sorted(set(row)) or any(not parent < child < count for child in row):
            raise reader.fail(f"module {parent} of {count} imports {list(row)}")
    if set(children) != set(range(1, count)):
        raise reader.fail("a module is imported by none")
    return tree


def _link(modules: Sequence[Module], tree: ImportTree) -> Module:
    # Give every module its imports, children first: an index is lower than those of its children.
    linked: dict[int, Module] = {}
    for i in reversed(range(len(modules))):
        imports = tuple(linked[child] for child in tree.children(i))
        linked[i] = replace(modules[i], imports=imports)
    if not linked:
        raise CorruptModelError("the blob holds no module")
    return linked[0]
