"""The tree of modules: order, merging, cycles, symbols, what the C runtime takes."""

import pytest

from crtgen.base.errors import ModelError, UnsupportedError
from crtgen.firmware.library.module import (
    ConstLoader,
    CSource,
    DeviceContext,
    DeviceSource,
    JsonModule,
    LlvmModule,
    MergedModule,
    Module,
    ObjectFile,
)
from crtgen.firmware.library.tree import check_crt_exportable, check_symbols, import_tree, walk


def c(name: str, *imports: Module, functions: tuple[str, ...] = (), consts: tuple[str, ...] = ()) -> CSource:
    return CSource(name=name, code="", functions=functions, const_vars=consts, imports=imports)


def llvm(name: str, *imports: Module) -> LlvmModule:
    return LlvmModule(name=name, content="", imports=imports)


def cuda(name: str, *imports: Module, functions: tuple[str, ...] = ()) -> DeviceSource:
    return DeviceSource(
        name=name, device="cuda", format="ptx", kernels={}, data=b"", functions=functions, imports=imports
    )


def test_llvm_importing_cuda() -> None:
    tree = import_tree(llvm("root", cuda("gpu")))
    assert [[m.name for m in group] for group in tree.groups] == [["root"], ["gpu"]]
    assert tree.row_ptr == (0, 1, 1)
    assert tree.child_indices == (1,)


def test_dso_modules_are_merged_wherever_they_hang() -> None:
    inner = c("inner")
    loader = ConstLoader(name="consts", arrays={}, users={}, imports=(inner,))
    tree = import_tree(cuda("root", loader, c("outer", llvm("deep"))))
    assert [[m.name for m in group] for group in tree.groups] == [
        ["root"],
        ["consts"],
        ["inner", "outer", "deep"],
    ]
    assert tree.row_ptr == (0, 2, 3, 3)
    assert tree.child_indices == (1, 2, 2)


def test_a_diamond_is_stored_once() -> None:
    bottom = cuda("bottom")
    root = cuda("root", cuda("left", bottom), cuda("right", bottom))
    tree = import_tree(root)
    assert [group[0].name for group in tree.groups] == ["root", "left", "right", "bottom"]
    assert [tree.children(i) for i in range(4)] == [(1, 2), (3,), (3,), ()]
    assert [m.name for m in walk(root)] == ["root", "left", "bottom", "right"]


def test_a_parent_comes_before_a_child_that_was_seen_earlier() -> None:
    shared = cuda("shared")
    tree = import_tree(cuda("root", shared, cuda("late", shared)))
    assert [group[0].name for group in tree.groups] == ["root", "late", "shared"]
    assert [tree.children(i) for i in range(3)] == [(1, 2), (2,), ()]


def test_a_cycle_made_by_merging_names_the_types() -> None:
    root = llvm("host", cuda("gpu", c("callback")))
    with pytest.raises(UnsupportedError, match="llvm/c -> cuda -> llvm/c") as caught:
        import_tree(root)
    assert "modules host, callback, gpu" in caught.value.message


def test_a_cycle_away_from_the_root() -> None:
    root = cuda("root", c("a", cuda("middle", c("b"))))
    with pytest.raises(UnsupportedError, match=r"c -> cuda -> c "):
        import_tree(root)


def test_a_deep_chain() -> None:
    module: Module = cuda("0")
    for i in range(1, 3000):
        module = cuda(str(i), module)
    assert import_tree(module).row_ptr == (*range(3000), 2999)


def test_duplicate_symbols_are_refused() -> None:
    root = c("a.c", c("b.c", functions=("f", "g")), functions=("h", "g"))
    with pytest.raises(ModelError, match=r"b\.c: the function g is defined and in a\.c"):
        check_symbols(root)
    with pytest.raises(ModelError, match=r"the function f is defined twice"):
        check_symbols(c("a.c", functions=("f", "f")))
    check_symbols(c("a.c", c("b.c", functions=("f",)), functions=("g",)))


@pytest.mark.parametrize(
    ("module", "dso", "crt"),
    [
        (c("m"), True, True),
        (llvm("m"), True, True),
        (ObjectFile(name="m", data=b""), True, True),
        (c("m", consts=("k",)), True, False),
        (CSource(name="m", code="", const_vars=("k",), consts_linked=True), True, True),
        (cuda("m"), False, False),
        (JsonModule(name="m", generator="dnnl", graph_json=""), False, False),
        (MergedModule(name="m", members=(c("a"), llvm("b"))), True, True),
        (MergedModule(name="m", members=(c("a"), c("b", consts=("k",)))), True, False),
    ],
)
def test_exportable(module: Module, dso: bool, crt: bool) -> None:
    assert (module.is_dso_exportable, module.is_crt_exportable) == (dso, crt)


def test_what_a_module_answers() -> None:
    merged = MergedModule(
        name="_lib", members=(c("a", functions=("f",)), c("b", functions=("g",), consts=("k",)))
    )
    assert merged.get_func_names() == ("f", "g")
    assert merged.get_const_vars() == ("k",)
    assert JsonModule(name="m", generator="dnnl", graph_json="", symbol="s").get_symbol() == "s"


def test_refusal_names_the_module_and_its_symbols() -> None:
    root = c("host.c", cuda("gpu", functions=("k0", "k1")))
    with pytest.raises(UnsupportedError, match="gpu: the cuda module with k0, k1 cannot run"):
        check_crt_exportable(walk(root))
    merged = MergedModule(name="_lib", members=(c("lib0.c", functions=("f",), consts=("w0", "w1")),))
    with pytest.raises(UnsupportedError, match=r"lib0\.c: the c module with f .* constants w0, w1"):
        check_crt_exportable(walk(merged))
    check_crt_exportable(walk(c("host.c", llvm("more"))))


def test_each_module_has_its_own_device_context() -> None:
    first, second = DeviceContext("ethos_u", 0), DeviceContext("ethos_u", 1)
    a = JsonModule(name="a", generator="dnnl", graph_json="", context=first)
    b = JsonModule(name="b", generator="dnnl", graph_json="", context=second)
    assert a.context != b.context
    assert str(b.context) == "ethos_u:1"
    assert c("c").context is None
