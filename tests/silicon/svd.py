"""Registers of chips by address, from SVD files of their makers.

They are looked for in the folder ``CRTGEN_SVD`` and in pyOCD, which brings some. The format is CMSIS-SVD.
"""

import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

__all__ = ["Field", "Register", "registers_of"]

Element = ElementTree.Element


@dataclass(frozen=True)
class Field:
    """Bits of a register: the lowest and how many, and the names of their values."""

    name: str
    low: int
    width: int
    values: Mapping[int, str]

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.low


@dataclass
class Register:
    """A register of ``bits`` bits; several may share an address. ``reset`` is its value after a reset."""

    name: str
    address: int
    bits: int
    reset: int
    fields: list[Field] = field(default_factory=list)

    @property
    def documented(self) -> int:
        """The bits that belong to a field; all of them where a register has no fields.

        Renesas' files have fields for the others, too, which say so.
        """
        mask = 0
        for each in self.fields:
            mask |= each.mask if each.name != "Reserved" else 0
        return mask or (1 << self.bits) - 1


def number(text: str) -> int:
    """A number of an SVD file: 0x, 0b, # for binary with x for any, or decimal with zeros before it."""
    text = text.strip().lower()
    if text.startswith(("#", "0b")):
        return int(text.lstrip("#").removeprefix("0b").replace("x", "0"), 2)
    return int(text, 16) if text.startswith("0x") else int(text)


@cache
def registers_of(name: str) -> dict[int, list[Register]] | None:
    """The registers of an SVD file by address; None if nobody has the file."""
    for text in _texts(name):
        return _read(ElementTree.fromstring(text))
    return None


def _texts(name: str) -> Iterator[bytes]:
    folder = os.environ.get("CRTGEN_SVD")
    if folder:
        for file in (Path(folder) / f"{name}.{ending}" for ending in ("svd", "xml")):
            if file.is_file():
                yield file.read_bytes()
    found = find_spec("pyocd")
    if found is not None and found.origin is not None:
        with zipfile.ZipFile(Path(found.origin).parent / "debug" / "svd" / "svd_data.zip") as archive:
            for each in archive.namelist():
                if each.rpartition(".")[0] == name:
                    yield io.BytesIO(archive.read(each)).read()


@dataclass(frozen=True)
class _Defaults:
    bits: int
    reset: int

    def below(self, node: Element) -> "_Defaults":
        size, reset = node.findtext("size"), node.findtext("resetValue")
        return _Defaults(number(size) if size else self.bits, number(reset) if reset else self.reset)


def _read(root: Element) -> dict[int, list[Register]]:
    """A SERCOM of SAM is a UART, SPI or I2C: the UART's registers come first."""
    peripherals = {node.findtext("name", ""): node for node in root.iter("peripheral")}
    found: dict[int, list[Register]] = {}
    outer = _Defaults(32, 0).below(root)
    for name, node in peripherals.items():
        base, model = number(node.findtext("baseAddress", "0")), node
        if node.find("registers") is None and node.get("derivedFrom"):
            model = peripherals[node.get("derivedFrom", "")]
        registers = model.find("registers")
        if registers is not None:
            for register in _walk(registers, base, f"{name}.", outer.below(model)):
                found.setdefault(register.address, []).append(register)
    for alternatives in found.values():
        alternatives.sort(key=lambda register: ".USART_INT." not in register.name)
    return found


def _walk(node: Element, base: int, prefix: str, outer: _Defaults) -> Iterator[Register]:
    named = {each.findtext("name", ""): each for each in node if each.tag in ("register", "cluster")}
    for each in named.values():
        model = named.get(each.get("derivedFrom", "").rpartition(".")[2], each)
        defaults = outer.below(model).below(each)
        start = base + number(each.findtext("addressOffset", "0"))
        for name, offset in _repeated(each, model):
            if each.tag == "cluster":
                yield from _walk(
                    model if each.find("register") is None else each,
                    start + offset,
                    f"{prefix}{name}.",
                    defaults,
                )
            else:
                fields = each.find("fields")
                listed = list(_fields(fields if fields is not None else model.find("fields")))
                yield Register(prefix + name, start + offset, defaults.bits, defaults.reset, listed)


def _repeated(node: Element, model: Element) -> Iterator[tuple[str, int]]:
    """Name and offset of each element of an array, or of the one that it is."""
    name = node.findtext("name", "")
    dim = node.findtext("dim") or model.findtext("dim")
    if dim is None:
        yield name.replace("[%s]", "").replace("%s", ""), 0
        return
    step = number(node.findtext("dimIncrement") or model.findtext("dimIncrement") or "0")
    index = node.findtext("dimIndex") or model.findtext("dimIndex") or ""
    names = index.split(",") if "," in index else [str(n) for n in range(number(dim))]
    for n in range(number(dim)):
        yield name.replace("%s", names[n]), step * n


def _fields(node: Element | None) -> Iterator[Field]:
    if node is None:
        return
    named = {each.findtext("name", ""): each for each in node}
    for each in node:
        model = named.get(each.get("derivedFrom", "").rpartition(".")[2], each)
        low, width = _bits(each if _has_bits(each) else model)
        values = {}
        for value in (*model.iter("enumeratedValue"), *each.iter("enumeratedValue")):
            if (text := value.findtext("value")) is not None:
                values[number(text)] = value.findtext("name", "")
        for name, offset in _repeated(each, model):
            yield Field(name, low + offset, width, values)


def _has_bits(node: Element) -> bool:
    return any(node.find(key) is not None for key in ("bitRange", "bitOffset", "lsb"))


def _bits(node: Element) -> tuple[int, int]:
    if (spread := node.findtext("bitRange")) is not None:
        high, low = map(int, spread.strip("[]").split(":"))
        return low, high - low + 1
    if (offset := node.findtext("bitOffset")) is not None:
        return number(offset), number(node.findtext("bitWidth", "1"))
    low = number(node.findtext("lsb", "0"))
    return low, number(node.findtext("msb", "0")) - low + 1
