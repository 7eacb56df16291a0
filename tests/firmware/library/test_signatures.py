"""Functions of the registry over the RPC: each call is checked against what the function takes."""

from dataclasses import replace

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import RemoteError
from crtgen.compiler.codegen.metadata import Registry, describe
from crtgen.compiler.codegen.module import Argument, RegistryFunction
from crtgen.network.ir import Array
from tests.support import ROOT, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"
TYPES = {(0, 8): np.int8, (0, 32): np.int32, (1, 8): np.uint8, (2, 32): np.float32}


def right(argument: Argument) -> Array | int:
    """A value that a function takes."""
    if argument.bits == 0:
        return 1
    dtype = TYPES[argument.code, argument.bits]
    return np.zeros(argument.nbytes // np.dtype(dtype).itemsize, dtype)


def wrong(arguments: tuple[Argument, ...]) -> list[list[object]]:
    """Lists of arguments that it does not take."""
    fine: list[object] = [right(a) for a in arguments]
    byte, forged = np.zeros(1, np.int8), 0x2000_0000
    lists: list[list[object]] = [fine[:-1], [*fine, forged]] if fine else [[forged]]
    for i, argument in enumerate(arguments):
        bad: list[object] = [None, "text", b"bytes", 0.5, byte, np.zeros(argument.nbytes + 1, np.int8)]
        bad += [np.zeros(argument.nbytes // 2, np.float16)] if argument.nbytes > 2 else []
        bad += [forged] if argument.bits else []
        lists += [[*fine[:i], value, *fine[i + 1 :]] for value in bad]
    return lists


@pytest.mark.parametrize(
    ("board", "executor"),
    [
        pytest.param("host", "graph", marks=pytest.mark.cc),
        pytest.param("host", "aot", marks=pytest.mark.cc),
        pytest.param("mps2_an386", "graph", marks=pytest.mark.qemu),
    ],
)
def test_every_function_refuses_what_it_does_not_take(board: str, executor: str) -> None:
    require_tool("gcc" if board == "host" else "arm-none-eabi-gcc")
    compiled = api.compile([api.load(DIGITS)], board, executor=executor)
    *functions, nothing = Registry.of([part.module for part in compiled.parts]).functions
    assert nothing.name == "__nop", "which takes anything, and does nothing with it"
    assert all(f.arguments is not None for f in functions)
    with compiled.generate().build().run() as session:
        library = session.client.system_lib()
        before = session.client.memory()
        for f in functions:
            call = library.function(f.name)
            for arguments in wrong(f.arguments or ()):
                with pytest.raises(RemoteError, match=rf"{f.name} (has|takes)"):
                    call(*arguments)
            call(*map(right, f.arguments or ()))
        assert session.client.memory() == before


def test_an_operator_of_a_graph_has_the_types_of_its_calls() -> None:
    compiled = api.compile([api.load(DIGITS)], "mps2_an386", executor="graph")
    by_name = {f.name: f.arguments for m in compiled.modules for f in m.functions}
    info = compiled.modules[0].info
    x, y = info.inputs[0].nbytes, info.outputs[0].nbytes
    first, *_, last = by_name.values()
    assert first is not None
    assert last is not None
    assert first[0] == Argument(x, 0, 8, 1)
    assert last[-1] == Argument(y, 0, 8, 1)


def test_what_is_not_known_is_said_in_the_table() -> None:
    (module,) = api.compile([api.load(DIGITS)], "mps2_an386").modules
    more = replace(module, functions=(*module.functions, RegistryFunction("other", "other")))
    view = describe(Registry.of([more]))
    x, y = module.info.inputs[0], module.info.outputs[0]
    assert view.arguments == (
        Argument(x.nbytes, 0, 8, 1),
        Argument(y.nbytes, 0, 8, 1),
        Argument(0, 0, 0, 0),
    )
    assert view.signatures == (2, 0, 1, 0xFFFF, 1, 2, 1, 2, 0, 0, 0xFFFE)
