"""Texts of archives that would take hours where an expression goes through them again from every place."""

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from crtgen.base.errors import CrtgenError
from crtgen.firmware.library import exported, interfaces
from crtgen.firmware.library.includes import resolve_includes
from crtgen.firmware.library.loaded_consts import with_loaded_consts
from crtgen.firmware.library.sources import source_module

LENGTH = 1 << 20


def _shapes(text: str) -> object:
    return interfaces._SHAPE.findall(text)


def _blob(text: str) -> object:
    return exported._ARRAY.search(text)


def _relay(text: str) -> object:
    return interfaces._RELAY_INPUT.findall(text), interfaces._RELAY_RESULT.search(text)


def _functions(text: str) -> object:
    return source_module("a", "c", text)


def _includes(text: str) -> object:
    return resolve_includes([source_module("a", "c", text)], (), "a.tar")


def _constants(text: str) -> object:
    module = source_module("a", "c", text + "int f(int *type_codes) {\n f_consts[0]->data;")
    return with_loaded_consts(module, {"f": ("k",)}, {})


@pytest.mark.parametrize(
    ("read", "piece"),
    [
        (_shapes, "static const int64_t a[1] = {"),
        (_blob, "__tvm_dev_mblob[] = {"),
        (_blob, "__tvm_dev_mblob[" + " " * 2000),
        (_relay, "%"),
        (_relay, "-> "),
        (_functions, "int f(\n"),
        (_functions, "int f()\n"),
        (_includes, "#include <\n"),
        (_constants, "f_consts"),
        (_constants, "#ifdef __cplusplus\nx\n"),
    ],
)
def test_a_megabyte_takes_no_time(read: Callable[[str], object], piece: str) -> None:
    text = piece * (LENGTH // len(piece))
    start = time.process_time()
    with suppress(CrtgenError, KeyError):
        read(text)
    assert time.process_time() - start < 30
