"""Flash and stack of layers, from symbols."""

from crtgen.compiler.codegen.module import LayerInfo
from crtgen.firmware.builder.layers import LayerSize, layer_sizes
from crtgen.firmware.builder.size import SizedSymbol


def test_a_shared_function_is_counted_for_each_and_said_to_be_shared() -> None:
    layers = [
        LayerInfo("a", "conv2d", "gemm", 10, "f0", ("wa", "ba")),
        LayerInfo("r", "reshape", "alias"),
        LayerInfo("b", "conv2d", "gemm", 10, "f0", ("wb",)),
    ]
    symbols = [
        SizedSymbol("f0", "text", 120, "model", "k.o"),
        SizedSymbol("wa", "rodata", 64, "weights", "w.o"),
        SizedSymbol("ba", "rodata", 16, "weights", "w.o"),
        SizedSymbol("wb", "rodata", 32, "weights", "w.o"),
    ]
    assert layer_sizes(layers, symbols, {"f0": 40}) == (
        LayerSize("a", "conv2d", "gemm", 120, 2, 80, 40),
        LayerSize("r", "reshape", "alias", 0, 0, 0, 0),
        LayerSize("b", "conv2d", "gemm", 120, 2, 32, 40),
    )


def test_functions_that_a_function_calls_are_a_part_of_it() -> None:
    layers = [LayerInfo("s", "row_loop", "rows", 10, "f2", (), ("f0", "f1"))]
    symbols = [SizedSymbol(f"f{i}", "text", size, "model", "k.o") for i, size in enumerate((100, 20, 3))]
    assert layer_sizes(layers, symbols, {"f2": 8}) == (LayerSize("s", "row_loop", "rows", 123, 1, 0, 8),)
