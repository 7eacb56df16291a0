"""Every format that others defined has one door: nothing else calls the library that parses it."""

import ast
from collections.abc import Iterator

from tests.support import ROOT

_CODE = ROOT / "crtgen"
_DOORS = _CODE / "base" / "formats"

_PARSERS = (
    *(f"numpy.{name}" for name in ("load", "fromfile", "loadtxt", "genfromtxt", "memmap", "lib.format")),
    *("PIL.Image.open", "PIL.ImageFile", "soundfile.", "wave.open", "pyjls.", "cbor2.", "sqlite3.connect"),
    *(
        "csv.reader",
        "csv.DictReader",
        "zipfile.ZipFile",
        "zipfile.PyZipFile",
        "tarfile.open",
        "shutil.unpack",
    ),
    *("tomllib.", "tomlkit.parse", "tomlkit.load", "yaml.", "pickle.", "marshal.load", "shelve.open"),
    *(f"xml.etree.ElementTree.{name}" for name in ("parse", "fromstring", "iterparse", "XML")),
    *("xml.dom", "xml.sax", "gzip.", "bz2.", "lzma.", "zlib.decompress("),
)
"""Beginnings of the full names of calls that read a foreign format."""


def names_of(nodes: list[ast.AST]) -> dict[str, str]:
    """Map local names to full ones: ``np`` for ``numpy``, ``Reader`` for ``pyjls.Reader``."""
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {
                each.asname or each.name.partition(".")[0]: each.name for each in node.names if each.asname
            }
            found |= {
                each.name.partition(".")[0]: each.name.partition(".")[0]
                for each in node.names
                if not each.asname
            }
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return found


def full_name(node: ast.expr, names: dict[str, str]) -> str:
    """``numpy.load`` for ``np.load``; empty for what is no name."""
    if isinstance(node, ast.Attribute):
        outer = full_name(node.value, names)
        return f"{outer}.{node.attr}" if outer else ""
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def writes(call: ast.Call) -> bool:
    """True if an archive is opened to be written."""
    modes = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "mode")]
    return any(isinstance(mode, ast.Constant) and mode.value == "w" for mode in modes)


_WORDS = [each.strip(".(").split(".") for each in _PARSERS]


def parsers_in(source: str) -> Iterator[str]:
    """The calls that read a foreign format, and what is handed on as a value."""
    if not any(all(word in source for word in words) for words in _WORDS):
        return  # whatever it is called here, the words of its full name are there
    nodes = list(ast.walk(ast.parse(source)))
    names = names_of(nodes)
    written = {id(call.func) for call in nodes if isinstance(call, ast.Call) and writes(call)}
    for node in nodes:
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in written:
            name = full_name(node, names)
            if f"{name}(".startswith(_PARSERS):
                yield f"{name}, line {node.lineno}"


def test_each_format_has_one_door() -> None:
    files = [file for file in sorted(_CODE.rglob("*.py")) if not file.is_relative_to(_DOORS)]
    assert len(files) > 700
    found = {str(file.relative_to(_CODE)): list(parsers_in(file.read_text())) for file in files}
    assert {file: calls for file, calls in found.items() if calls} == {}


def test_the_search_finds_them() -> None:
    """Under each name that somebody may give them."""
    for source, found in (
        ("import numpy as np\nnp.load(x)", "numpy.load, line 2"),
        ("from numpy import load\nf = load", "numpy.load, line 2"),
        ("def f():\n from PIL import Image as I\n I.open(x)", "PIL.Image.open, line 3"),
        ("from zipfile import ZipFile\nZipFile(x)", "zipfile.ZipFile, line 2"),
        ("import zipfile\nzipfile.ZipFile(x, 'r')", "zipfile.ZipFile, line 2"),
        ("from pyjls import Reader\nReader(x)", "pyjls.Reader, line 2"),
        (
            "from xml.etree import ElementTree as E\nE.fromstring(x)",
            "xml.etree.ElementTree.fromstring, line 2",
        ),
        ("import zlib\nzlib.decompress(x)", "zlib.decompress, line 2"),
    ):
        assert list(parsers_in(source)) == [found]
    for fine in ("from zipfile import ZipFile\nZipFile(x, 'w')", "import csv\ncsv.writer(x)", "load(x)"):
        assert not list(parsers_in(fine))
