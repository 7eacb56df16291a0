"""The metadata module by LLVM against the one by C: the same tables, functions, answers."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import ARMAttributesSection, SymbolTableSection

from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.base.resources import runtime_dir
from crtgen.boards.core import CORES, HOST, Core
from crtgen.compiler.codegen import CModule, Registry, RegistryFunction, generate_c, llvm
from crtgen.compiler.codegen.metadata import metadata_source
from tests.compiler.codegen.models import two_layers
from tests.support import WARNINGS, require_tool, symbol_table

HERE = Path(__file__).parent
COUNTS = (0, 1, 255, 256, 1000)
ARCHITECTURES = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m33", "cortex-m55")

pytest.importorskip("llvmlite")
pytest.importorskip("ziglang")


def registry(count: int) -> Registry:
    functions = tuple(RegistryFunction(f"layer.{i}é", f"f{i}") for i in range(count))
    return Registry(functions, (), ())


def module(name: str) -> CModule:
    return generate_c(two_layers(name), name)


def by_gcc(directory: Path, text: str, command: list[str]) -> bytes:
    (directory / "m.c").write_text(text)
    include = f"-I{runtime_dir() / 'include'}"
    subprocess.run(
        [*command, "-O2", *WARNINGS, include, "-c", "m.c", "-o", "m.o"],
        cwd=directory,
        check=True,
        timeout=120,
    )
    return (directory / "m.o").read_bytes()


def symbols(data: bytes) -> dict[str, tuple[bytes, list[tuple[int, str]]]]:
    """Every object of an ELF file: its bytes, and which symbol stands at which offset of it."""
    elf = ELFFile(io.BytesIO(data))
    table = symbol_table(elf)
    found = {}
    for symbol in table.iter_symbols():
        if symbol["st_info"]["type"] != "STT_OBJECT" or symbol["st_shndx"] == "SHN_UNDEF":
            continue
        section = elf.get_section(symbol["st_shndx"])
        start, size = symbol["st_value"], symbol["st_size"]
        moves = elf.get_section_by_name(f".rel{section.name}")
        refers = [
            (r["r_offset"] - start, target(elf, table, r["r_info_sym"], section.data(), r["r_offset"]))
            for r in (moves.iter_relocations() if isinstance(moves, RelocationSection) else ())
            if start <= r["r_offset"] < start + size
        ]
        content = bytearray(section.data()[start : start + size])
        for offset, _ in refers:
            content[offset : offset + 4] = bytes(4)
        found[symbol.name] = bytes(content), refers
    return found


def target(elf: ELFFile, table: SymbolTableSection, index: int, content: bytes, at: int) -> str:
    """The name of what a word of the section points to."""
    symbol = table.get_symbol(index)
    if symbol["st_info"]["type"] != "STT_SECTION":
        return str(symbol.name)
    place = int.from_bytes(content[at : at + 4], "little")
    names = [
        s.name
        for s in table.iter_symbols()
        if s["st_shndx"] == symbol["st_shndx"]
        and s["st_value"] == place
        and s["st_info"]["type"] == "STT_OBJECT"
    ]
    return names[0] if names else f"{elf.get_section(symbol['st_shndx']).name}+{place}"


def arm(core: Core) -> list[str]:
    return [require_tool("arm-none-eabi-gcc"), *core.gcc_flags, "-fno-toplevel-reorder"]


@pytest.mark.cc
@pytest.mark.parametrize("count", COUNTS)
def test_same_tables(tmp_path: Path, count: int) -> None:
    """The name table, the functions and the entry, byte by byte and pointer by pointer."""
    core = CORES["cortex-m4"]
    c = symbols(by_gcc(tmp_path, metadata_source(registry(count)), arm(core)))
    made = symbols(llvm.metadata_object(registry(count), core))
    assert c["names"][0] == made["names"][0]
    assert len(c["names"][0]) == 3 + sum(len(f"layer.{i}é".encode()) + 1 for i in range(count))
    assert c["functions"] == made["functions"]
    assert [name for _, name in made["functions"][1]] == [f"f{i}" for i in range(count)]
    for name in ("registry", "module", "crt_models", "crt_num_models"):
        assert c[name] == made[name], name


@pytest.mark.cc
def test_same_tables_of_models(tmp_path: Path) -> None:
    """Parameters and the models' descriptions: every struct that C and LLVM lay out."""
    core = CORES["cortex-m4"]
    two = Registry.of([module("a"), module("b")])
    c = symbols(by_gcc(tmp_path, metadata_source(two), arm(core)))
    made = symbols(llvm.metadata_object(two, core))
    compared = ["linked_params", "crt_params", "names", "functions", "crt_models", "crt_num_models"]
    assert {n: c[n] for n in compared} == {n: made[n] for n in compared}
    for name in ("a_metadata", "a_inputs", "a_outputs"):
        assert c[name][0] == made[name][0], name
        assert [at for at, _ in c[name][1]] == [at for at, _ in made[name][1]], name


@pytest.mark.parametrize("core", ARCHITECTURES)
def test_objects_cost_no_ram(core: str) -> None:
    """Only code and constants, for every architecture."""
    data = llvm.metadata_object(Registry.of([module("net")]), CORES[core])
    elf = ELFFile(io.BytesIO(data))
    assert elf["e_machine"] == "EM_ARM"
    assert sum(s["sh_size"] for s in elf.iter_sections() if s["sh_flags"] & 1 and s["sh_flags"] & 2) == 0
    assert sum(s["sh_size"] for s in elf.iter_sections() if s.name == ".rodata") > 100


@pytest.mark.parametrize("core", CORES)
def test_objects_tell_the_float_abi(core: str) -> None:
    """Linkers refuse objects whose functions pass floats in other registers."""
    elf = ELFFile(io.BytesIO(llvm.metadata_object(registry(1), CORES[core])))
    attributes = elf.get_section_by_name(".ARM.attributes")
    assert isinstance(attributes, ARMAttributesSection)
    tags = {
        a.tag: a.value for s in attributes.subsections for p in s.subsubsections for a in p.iter_attributes()
    }
    assert ("TAG_ABI_VFP_ARGS" in tags) is (CORES[core].fpu != "none")


def test_functions_are_declared_external() -> None:
    text = llvm.metadata_ir(Registry.of([module("net")]), CORES["cortex-m33"])
    assert "declare i32 @net_run_packed(ptr, ptr, i32, ptr, ptr, ptr)" in text
    assert 'target triple = "thumbv8m.main-unknown-none-gnueabihf"' in text
    assert "@net_model = external constant" in text


@pytest.mark.cc
@pytest.mark.parametrize("emitter", ["c", "llvm"])
@pytest.mark.parametrize("count", COUNTS)
def test_every_name_is_found_and_called(tmp_path: Path, count: int, emitter: str) -> None:
    gcc = require_tool("gcc")
    made = registry(count)
    if emitter == "c":
        by_gcc(tmp_path, metadata_source(made), [gcc])
    else:
        (tmp_path / "m.o").write_bytes(llvm.metadata_object(made, HOST))
    lines = ["#include <tvm/runtime/c_backend_api.h>"]
    arguments = "TVMValue *a, int *t, int n, TVMValue *r, int *c, void *p"
    for i, function in enumerate(made.functions):
        lines.append(f"int {function.symbol}({arguments});")
        lines.append(f"int {function.symbol}({arguments}) {{ r->v_int64 = {i}; return 0; }}")
    lines.append("const char *const wanted[] = {")
    lines += [f'"{f.name}",' for f in made.functions]
    lines += ["0};", f"const int count = {count};"]
    (tmp_path / "functions.c").write_text("\n".join(lines) + "\n")
    root = runtime_dir()
    sources = ["m.o", "functions.c", str(HERE / "names.c"), str(root / "src" / "crt_registry.c")]
    command = [gcc, "-w", f"-I{root / 'include'}", *sources, "-o", "program"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    done = subprocess.run([tmp_path / "program"], check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout == f"{count} found and called\n"


@pytest.mark.cc
def test_the_same_answers_as_c(tmp_path: Path) -> None:
    """A model on the host with the LLVM module in place of the C one."""
    net = module("net")
    for name, text in net.files.items():
        (tmp_path / name).write_text(text)
    root = runtime_dir()
    c_sources = [n for n in net.files if n.endswith(".c")]
    outputs = []
    for emitter in ("c", "llvm"):
        if emitter == "c":
            by_gcc(tmp_path, metadata_source(Registry.of([net])), [require_tool("gcc")])
        else:
            (tmp_path / "m.o").write_bytes(llvm.metadata_object(Registry.of([net]), HOST))
        sources = ["m.o", *c_sources, str(HERE / "image.c"), str(root / "src" / "crt_registry.c")]
        command = [require_tool("gcc"), "-w", f"-I{root / 'include'}", "-I.", *sources, "-o", "program"]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
        done = subprocess.run([tmp_path / "program"], check=True, timeout=120, capture_output=True, text=True)
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert "param 0 3" in outputs[0]
    assert "miss 0 4 1" in outputs[0]


@pytest.mark.parametrize("name", ["", "a\0b", "twice"])
def test_names_that_the_table_cannot_hold_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        metadata_ir_of(RegistryFunction("twice", "f"), RegistryFunction(name, "g"))


def test_a_symbol_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="symbol f occurs 2 times"):
        metadata_ir_of(RegistryFunction("one", "f"), RegistryFunction("two", "f"))


def metadata_ir_of(*functions: RegistryFunction) -> str:
    return llvm.metadata_ir(Registry(functions, (), ()), CORES["cortex-m4"])


def test_without_llvmlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm, "find_spec", lambda name: None if name == "llvmlite" else object())
    with pytest.raises(ToolMissingError, match="llvmlite is not installed") as caught:
        llvm.metadata_ir(registry(1), HOST)
    assert caught.value.hint == "pip install 'crtgen[llvm]'"


def test_nothing_else_imports_llvmlite() -> None:
    """The package, its command line and its code generation work without it."""
    code = (
        "import sys; sys.modules['llvmlite'] = None; import crtgen, crtgen.cli, crtgen.compiler.codegen.llvm"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
