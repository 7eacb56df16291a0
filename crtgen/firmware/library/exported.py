"""Libraries that TVM exported for its C++ runtime: ``.tar`` or ``.so``, with a module blob inside.

The blob is decoded here and never reaches a device; the parts that can run there are extracted from it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from crtgen.base.errors import CorruptModelError
from crtgen.firmware.library.archive import read_tar
from crtgen.firmware.library.blob import read_blob
from crtgen.firmware.library.elf import read_elf
from crtgen.firmware.library.loaded_consts import with_loaded_consts
from crtgen.firmware.library.module import ConstLoader, ExecutorFactory, MergedModule, Module, ObjectFile
from crtgen.firmware.library.params import NDArray
from crtgen.firmware.library.sources import check_machine, object_module, source_module
from crtgen.firmware.library.tree import check_crt_exportable, check_symbols, walk

__all__ = ["BLOB_SYMBOL", "ExportedLibrary", "read_exported", "static_modules"]

BLOB_SYMBOL = "__tvm_dev_mblob"
_ARRAY = re.compile(rf"{BLOB_SYMBOL}\s*+\[\s*+\d*+\s*+\]\s*+=\s*+\{{([^{{}}]*+)\}}")
_CODE_FILE = re.compile(r"lib\d+\.(o|c|cc|cpp)")


@dataclass(frozen=True, slots=True, eq=False)
class ExportedLibrary:
    """The module tree of an exported library; ``name`` is the file's name, for messages."""

    name: str
    root: Module

    @property
    def members(self) -> tuple[Module, ...]:
        return tuple(chain.from_iterable(m.members for m in walk(self.root) if isinstance(m, MergedModule)))

    @property
    def functions(self) -> tuple[str, ...]:
        return tuple(f for member in self.members for f in member.get_func_names())

    @property
    def constants(self) -> dict[str, NDArray]:
        loaders = (m for m in walk(self.root) if isinstance(m, ConstLoader))
        return {name: array for loader in loaders for name, array in loader.arrays.items()}

    @property
    def users(self) -> dict[str, tuple[str, ...]]:
        loaders = (m for m in walk(self.root) if isinstance(m, ConstLoader))
        return {symbol: names for loader in loaders for symbol, names in loader.users.items()}

    @property
    def factory(self) -> ExecutorFactory | None:
        return self.root if isinstance(self.root, ExecutorFactory) else None


def read_exported(data: bytes, where: str) -> ExportedLibrary:
    if data[:4] == b"\x7fELF":
        blob = read_elf(data, where).data(BLOB_SYMBOL)
        return _library(where, blob, (object_module(where, data, where),))
    files = read_tar(data, where)
    members: list[Module] = []
    blob = None
    for name in sorted(files):
        if name in ("devc.o", "devc.c"):
            blob = _blob_of(name, files[name], f"{where}: {name}")
        elif _CODE_FILE.fullmatch(name):
            members.append(_member(name, files[name], f"{where}: {name}"))
        else:
            raise CorruptModelError(f"{name} is not part of an exported library", where=where)
    if not members:
        raise CorruptModelError("the library holds no code", where=where)
    return _library(where, blob, members)


def static_modules(library: ExportedLibrary, machine: str, hosted: bool) -> tuple[Module, ...]:
    """Return the modules to compile and link into an image for ``machine``, as ELF names it (``ARM``,
    ``X86_64``).

    Executors must already be resolved. Constants that a loader would set are linked as data. The first module
    that cannot run on the target is refused by name: one for another device, one whose constants cannot be
    linked, code for another machine, and, unless the image is ``hosted``, a shared library.
    """
    resolved = (ConstLoader, ExecutorFactory, MergedModule)
    check_symbols(library.root)
    users, constants = library.users, library.constants
    members = tuple(with_loaded_consts(member, users, constants) for member in library.members)
    check_crt_exportable([m for m in walk(library.root) if not isinstance(m, resolved)])
    check_crt_exportable(members)
    for member in members:
        if isinstance(member, ObjectFile):
            check_machine(library.name, member.name, member.data, machine, hosted)
    return members


def _member(name: str, data: bytes, where: str) -> Module:
    suffix = name.rpartition(".")[2]
    if suffix == "o":
        return object_module(name, data, where)
    try:
        return source_module(name, suffix, data.decode())
    except UnicodeDecodeError as error:
        raise CorruptModelError("the text is not UTF-8", where=where) from error


def _blob_of(name: str, data: bytes, where: str) -> bytes:
    if name.endswith(".o"):
        blob = read_elf(data, where).data(BLOB_SYMBOL)
    else:
        match = _ARRAY.search(data.decode("latin-1"))
        blob = None if match is None else _parse_array(match[1], where)
    if blob is None:
        raise CorruptModelError(f"the library does not define {BLOB_SYMBOL}", where=where)
    return blob


def _parse_array(text: str, where: str) -> bytes:
    try:
        return bytes(int(item, 0) for item in map(str.strip, text.split(",")) if item)
    except ValueError as error:
        raise CorruptModelError(f"{BLOB_SYMBOL} is not an array of bytes: {error}", where=where) from error


def _library(where: str, blob: bytes | None, members: Sequence[Module]) -> ExportedLibrary:
    if blob is None:
        return ExportedLibrary(where, MergedModule(name=where, members=tuple(members)))
    place = f"{where}: {BLOB_SYMBOL}"
    users: dict[str, tuple[str, ...]] = {}
    for module in walk(read_blob(blob, (), place)):
        if isinstance(module, ConstLoader):
            users |= module.users
    return ExportedLibrary(where, read_blob(blob, [_with_consts(m, users) for m in members], place))


def _with_consts(member: Module, users: Mapping[str, tuple[str, ...]]) -> Module:
    # The module with the constants that a loader would give to its functions.
    mine = [f for f in member.functions if f in users]
    if not mine:
        return member
    return replace(member, symbol=mine[0], const_vars=tuple(c for f in mine for c in users[f]))
