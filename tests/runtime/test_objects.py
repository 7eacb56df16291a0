"""The objects that a device links: every core, no variables, nothing of heap or stdio, and their size."""

import re
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crtgen import __version__
from crtgen.boards.core import CORES
from crtgen.compiler.codegen import RUNTIME_VERSION
from crtgen.firmware.project import firmware
from crtgen.firmware.project.options import RECEIVE_LEAST
from tests.runtime.build import RUNTIME, WARNINGS, runtime_sources, zig
from tests.support import cached, nightly, require_tool, symbol_table

pytestmark = pytest.mark.cc

SERVER_TEXT = 16_200
"""Bytes of code and constants of the server on a Cortex-M4, without slots and black boxes.

Growth needs a reason.
"""

SLOT_TEXT = 1152
"""The same of what opens a model in a slot, of which reading with care takes a hundred."""

OPTIONAL = ("crt_field", "crt_slot", "crt_record", "crt_drift", "crt_cores")
"""What only some images have begins with these."""

WORDS_OF_TWO_CORES = 16
"""The variables of crt_cores.c, in images for two cores."""

CORES_OF_GCC = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55")
CORES_IN_CI = ("cortex-m0plus", "cortex-m4", "cortex-m55")
INTEGER_HELPERS = ("__aeabi_uidiv", "__aeabi_lmul", "__aeabi_ll", "__gnu_thumb1_case")
ALLOWED = {"memcpy", "memmove", "memset", "memcmp", "strlen", "strcmp", "crt_backend"}


def _compile(command: tuple[str, ...], out: Path) -> list[Path]:
    objects = []
    for source in runtime_sources():
        target = out / f"{source.stem}.o"
        flags = ("-Os", "-ffunction-sections", "-fdata-sections", f"-I{RUNTIME / 'include'}")
        done = subprocess.run(
            [*cached(command), *WARNINGS, *flags, "-c", str(source), "-o", str(target)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        objects.append(target)
    return objects


def _sections(objects: list[Path]) -> dict[str, int]:
    """Bytes of code and constants, of initialised and of other variables."""
    sizes = {"text": 0, "data": 0, "bss": 0}
    for path in objects:
        with path.open("rb") as file:
            for section in ELFFile(file).iter_sections():
                flags, size = section["sh_flags"], section["sh_size"]
                if flags & 2 and section["sh_type"] == "SHT_NOBITS":
                    sizes["bss"] += size
                elif flags & 2 and not section.name.startswith((".ARM", ".eh_frame")):
                    sizes["data" if flags & 1 else "text"] += size
    return sizes


def _symbols(objects: list[Path]) -> tuple[set[str], set[str]]:
    """Global names that are defined, and those that are asked for and defined in none of the objects."""
    defined: set[str] = set()
    asked: set[str] = set()
    for path in objects:
        with path.open("rb") as file:
            for symbol in symbol_table(ELFFile(file)).iter_symbols():
                if symbol["st_info"]["bind"] == "STB_LOCAL" or not symbol.name:
                    continue
                (asked if symbol["st_shndx"] == "SHN_UNDEF" else defined).add(symbol.name)
    return defined, asked - defined


@pytest.mark.parametrize("core", [core if core in CORES_IN_CI else nightly(core) for core in CORES_OF_GCC])
def test_gcc(tmp_path: Path, core: str) -> None:
    objects = _compile((require_tool("arm-none-eabi-gcc"), *CORES[core].gcc_flags), tmp_path)
    sizes = _sections(objects)
    assert (sizes["data"], sizes["bss"]) == (0, WORDS_OF_TWO_CORES)
    if core == "cortex-m4":
        optional = [path for path in objects if path.stem.startswith(OPTIONAL)]
        assert sizes["text"] - _sections(optional)["text"] < SERVER_TEXT
        loader = [path for path in objects if path.stem in ("crt_slot", "crt_crc32")]
        assert _sections(loader)["text"] < SLOT_TEXT
    defined, asked = _symbols(objects)
    assert {name for name in asked if not name.startswith(INTEGER_HELPERS)} <= ALLOWED
    assert all(name.startswith(("crt_", "TVM")) for name in defined), defined


@pytest.mark.parametrize("core", map(nightly, ("cortex-m0plus", "cortex-m4", "cortex-m55")))
def test_zig_without_a_c_library(tmp_path: Path, core: str) -> None:
    """Our own memory functions and headers take the place of the C library's."""
    abi = "eabi" if CORES[core].fpu == "none" else "eabihf"
    target = ("-target", f"thumb-freestanding-{abi}", f"-mcpu={core.replace('-', '_')}")
    objects = _compile((*zig(), *target, "-isystem", str(RUNTIME / "include" / "freestanding")), tmp_path)
    sizes = _sections(objects)
    assert (sizes["data"], sizes["bss"]) == (0, WORDS_OF_TWO_CORES)
    _, asked = _symbols(objects)
    assert {name for name in asked if not name.startswith("__aeabi_")} <= {"crt_backend"}


def test_a_profiling_build_has_two_variables(tmp_path: Path) -> None:
    flags = (*CORES["cortex-m4"].gcc_flags, "-DCRT_PROFILE")
    objects = _compile((require_tool("arm-none-eabi-gcc"), *flags), tmp_path)
    sizes = _sections(objects)
    assert (sizes["data"], sizes["bss"]) == (0, 40 + WORDS_OF_TWO_CORES)


def test_each_object_knows_only_those_below_it(tmp_path: Path) -> None:
    """Layers, as DESIGN.md says: no circle of objects that need each other."""
    objects = _compile((require_tool("arm-none-eabi-gcc"), *CORES["cortex-m4"].gcc_flags), tmp_path)
    symbols = {path.stem: _symbols([path]) for path in objects}
    owner = {symbol: name for name, (defined, _) in symbols.items() for symbol in defined}
    below = {name: {owner[s] for s in asked if s in owner} for name, (_, asked) in symbols.items()}
    order = list(TopologicalSorter(below).static_order())  # raises CycleError
    layers = (
        "crt_call",
        "crt_executor",
        "crt_modules",
        "crt_time",
        "crt_globals",
        "crt_functions",
        "crt_server",
    )
    assert [name for name in order if name in layers] == list(layers)


@pytest.mark.parametrize(("models", "compiles"), [(32, True), (33, False)])
def test_more_models_than_a_word_has_bits_are_refused(tmp_path: Path, models: int, compiles: bool) -> None:
    (tmp_path / "x.c").write_text("#include <crt/server.h>\n")
    flags = (f"-DCRT_SERVER_MODELS={models}", f"-I{RUNTIME / 'include'}", "-fsyntax-only")
    command = [require_tool("gcc"), *WARNINGS, *flags, str(tmp_path / "x.c")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode == 0, "CRT_SERVER_MODELS" in done.stderr) == (compiles, not compiles)


def test_versions_agree() -> None:
    text = (RUNTIME / "include" / "crt" / "version.h").read_text()
    assert f'#define CRT_VERSION_STRING "{__version__}"' in text
    assert f"#define CRT_VERSION {RUNTIME_VERSION}\n" in text


def test_the_limits_of_a_server_are_those_that_projects_are_checked_against() -> None:
    headers = "".join((RUNTIME / "include" / "crt" / name).read_text() for name in ("server.h", "pool.h"))
    found = {name: int(value) for name, value in re.findall(r"#define (CRT_\w+) (\d+)u?\n", headers)}
    limits = ("CRT_SERVER_MODELS", "CRT_SERVER_RECEIVE_MIN", "CRT_POOL_BLOCKS", "CRT_POOL_ALIGN")
    known = (firmware._SERVER_MODELS, RECEIVE_LEAST, firmware._BLOCKS, firmware._ALIGN)
    assert tuple(found[name] for name in limits) == known


STANDALONE = """
#include <crt/model.h>
static int32_t run(void) { CRT_LAYER_TIMED(0); return 0; }
static const struct crt_model model = {.name = "m", .run = run};
int main(void) { return (int)model.run(); }
"""

SERVER = """
#include <crt/server.h>
static struct crt_server server;
static struct crt_server_config config;
int main(void)
{
    uint8_t byte = 0;
    crt_server_boot(&server);
    return crt_server_init(&server, &config) + crt_server_feed(&server, &byte, 1);
}
"""


def _link(tmp_path: Path, text: str) -> set[str]:
    """The functions and variables of an image with all the objects of the runtime."""
    compiler = (require_tool("arm-none-eabi-gcc"), *CORES["cortex-m4"].gcc_flags)
    objects = _compile(compiler, tmp_path)
    (tmp_path / "main.c").write_text(text)
    image = tmp_path / "image.elf"
    flags = ("-Os", "--specs=nano.specs", "-nostartfiles", "-Wl,--gc-sections", "-Wl,-e,main")
    command = (*compiler, *flags, f"-I{RUNTIME / 'include'}", str(tmp_path / "main.c"), *map(str, objects))
    done = subprocess.run(
        [*command, "-o", str(image)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    with image.open("rb") as file:
        symbols = symbol_table(ELFFile(file)).iter_symbols()
        return {s.name for s in symbols if s["st_info"]["type"] in ("STT_FUNC", "STT_OBJECT")}


def test_a_standalone_image_has_nothing_of_the_server(tmp_path: Path) -> None:
    assert not {name for name in _link(tmp_path, STANDALONE) if name.startswith(("crt_", "TVM"))}


def test_an_image_with_the_server_has_no_heap_and_no_stdio(tmp_path: Path) -> None:
    names = _link(tmp_path, SERVER)
    assert {"crt_server_feed", "crt_executor_run", "crt_time_measure"} <= names
    assert not {name for name in names if name.startswith("TVM")}
    unwanted = ("malloc", "free", "printf", "sbrk", "__aeabi_d", "__aeabi_f", "__aeabi_uldivmod", "abort")
    foreign = {name for name in names if not name.startswith("crt_")}
    assert not {name for name in foreign if any(word in name for word in unwanted)}
