"""C that TVM generated compiles unchanged against our headers, and the ABI is the one that it expects."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.build import RUNTIME
from tests.support import cached, models_dir, nightly, require_tool

pytestmark = pytest.mark.cc

M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=auto")
INCLUDE = RUNTIME / "include"
HEADERS = sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.h"))
STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
NEEDED = {"TVMBackendAllocWorkspace", "TVMBackendFreeWorkspace"}

LAYOUT = """
#include <stddef.h>
#include <tvm/runtime/crt/error_codes.h>
#include <tvm/runtime/crt/packed_func.h>
#include <tvm/runtime/metadata.h>
_Static_assert(sizeof(DLDevice) == 8, "");
_Static_assert(sizeof(DLDataType) == 4, "");
_Static_assert(sizeof(TVMValue) == 8, "");
_Static_assert(offsetof(DLTensor, device) == POINTER, "");
_Static_assert(offsetof(DLTensor, ndim) == POINTER + 8, "");
_Static_assert(offsetof(DLTensor, dtype) == POINTER + 12, "");
_Static_assert(offsetof(DLTensor, shape) == POINTER + 16, "");
_Static_assert(offsetof(DLTensor, strides) == 2 * POINTER + 16, "");
_Static_assert(offsetof(DLTensor, byte_offset) == (3 * POINTER + 16 + 7) / 8 * 8, "");
_Static_assert(sizeof(TVMFuncRegistry) == 2 * POINTER, "");
_Static_assert(sizeof(TVMModule) == POINTER, "");
_Static_assert(offsetof(struct TVMTensorInfo, num_shape) == 2 * POINTER, "");
_Static_assert(offsetof(struct TVMConstantInfo, byte_offset) == 8, "");
_Static_assert(offsetof(struct TVMMetadata, inputs) == 8, "");
_Static_assert(offsetof(struct TVMMetadata, num_inputs) == 16, "");
_Static_assert(kTVMOpaqueHandle == 3 && kTVMNullptr == 4 && kTVMDataType == 5 && kDLDevice == 6, "");
_Static_assert(kTVMDLTensorHandle == 7 && kTVMModuleHandle == 9 && kTVMPackedFuncHandle == 10, "");
_Static_assert(kTvmErrorBufferTooSmall == 0x104 && kTvmErrorFramingPayloadIncomplete == 0x204, "");
_Static_assert(kTvmErrorWriteStreamLongWrite == 0x301, "");
_Static_assert(kTvmErrorSessionReceiveBufferShortWrite == 0x402, "");
_Static_assert(kTvmErrorPlatformStackAllocBadFree == 0x505, "");
_Static_assert(kTvmErrorGeneratedInvalidStorageId == 0x600, "");
_Static_assert(kTvmErrorExecutorModuleNoSuchInput == 0x702 && kTvmErrorFunctionCallInvalidArg == 0x803, "");
_Static_assert(kTvmErrorTimeEvaluatorBadHandle == 0x900 && kTvmErrorCategoryTimeEvaluator == 9, "");
_Static_assert(kTVMStr == 11 && kTVMBytes == 12 && kTVMNDArrayHandle == 13, "");
"""


def _compile(command: tuple[str, ...], source: Path, out: Path) -> None:
    done = subprocess.run(
        [*cached(command), f"-I{INCLUDE}", "-c", str(source), "-o", str(out)],
        cwd=source.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{source.name}: {done.stderr}"


@pytest.mark.parametrize("enums", ["-fshort-enums", "-fno-short-enums"])
@pytest.mark.parametrize(("compiler", "flags", "pointer"), [("gcc", (), 8), ("arm-none-eabi-gcc", M4, 4)])
def test_layout(tmp_path: Path, compiler: str, flags: tuple[str, ...], pointer: int, enums: str) -> None:
    source = tmp_path / "layout.c"
    source.write_text(LAYOUT)
    _compile((require_tool(compiler), *flags, enums, f"-DPOINTER={pointer}"), source, tmp_path / "layout.o")


@pytest.mark.parametrize("header", [h for h in HEADERS if not h.startswith("freestanding/")])
def test_every_header_stands_alone(tmp_path: Path, header: str) -> None:
    source = tmp_path / "one.c"
    source.write_text(f"#include <{header}>\n#include <{header}>\ntypedef int one;\n")
    _compile((require_tool("gcc"), "-std=c11", *STRICT), source, tmp_path / "one.o")


@pytest.mark.parametrize("header", [h for h in HEADERS if h.startswith(("dlpack/", "tvm/"))])
def test_shared_headers_are_cpp(tmp_path: Path, header: str) -> None:
    source = tmp_path / "one.cc"
    source.write_text(f"#include <{header}>\n")
    _compile((require_tool("g++"), *STRICT), source, tmp_path / "one.o")


@pytest.mark.models
@pytest.mark.parametrize(("compiler", "flags"), [nightly("gcc", ()), ("arm-none-eabi-gcc", M4)])
def test_generated_sources_compile(tmp_path: Path, compiler: str, flags: tuple[str, ...]) -> None:
    """All but the sources that need another library; what they ask of the runtime is what it has.

    On a push ``tests/firmware/library`` has most of them compiled and run on the host.
    """
    wanted: set[str] = set()
    for archive in sorted((models_dir().parent / "mlf").glob("*.tar")):
        folder = tmp_path / archive.stem
        shutil.unpack_archive(archive, folder, filter="data")
        host = folder / "codegen" / "host"
        for source in sorted((host / "src").glob("*.c")):
            if source.stat().st_size < 1 << 20 and "arm_nnfunctions.h" not in source.read_text():
                quiet = ("-std=gnu11", "-w", "-Wno-incompatible-pointer-types")  # GCC 14 makes it an error
                command = (require_tool(compiler), *flags, *quiet, f"-I{host / 'include'}")
                _compile(command, source, tmp_path / "one.o")
                nm = "nm" if compiler == "gcc" else "arm-none-eabi-nm"
                command = (require_tool(nm), "-u", str(tmp_path / "one.o"))
                text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                wanted |= {name for name in text.split() if name.startswith("TVM")}
    assert wanted == NEEDED


ROUNDED = """
#include <stdio.h>
#include <crt/kernel.h>
static float quotient(float x) { return x / 3.3f; }
static float sum(float a, float b, float c) { const float product = a * b; return product + c; }
int main(void)
{
    volatile float halves[] = {0.5f, 0.75f, 1.5f, -0.75f, 2.9f};
    for (int i = 0; i < 5; i++) {
        printf("%d ", (int)crt_evenf(halves[i]));
    }
    for (int i = 1; i < 9; i++) {
        const volatile float a = 0.37f * (float)i, b = 1.1f + 0.001f * (float)i;
        printf("%a %a ", (double)quotient(a), (double)sum(a, b, -a));
    }
    return 0;
}
"""


def test_fast_math_changes_nothing(tmp_path: Path) -> None:
    """Arduino's menus offer -Ofast, Keil offers clang's -ffast-math, and GCC fuses under -std=gnu17."""
    source, program = tmp_path / "rounded.c", tmp_path / "rounded"
    source.write_text(ROUNDED)
    options = (["-std=c11", "-O2"], ["-std=gnu17", "-O2"], ["-Ofast"], ["-O2", "-funsafe-math-optimizations"])
    said = set()
    for each in options:
        command = [require_tool("gcc"), *each, *STRICT, f"-I{INCLUDE}", str(source), "-o", str(program)]
        subprocess.run(command, check=True, timeout=60)
        said.add(subprocess.run([program], capture_output=True, text=True, timeout=60, check=True).stdout)
    (text,) = said
    assert text.startswith("0 1 2 -1 3 0x")
    clang = [sys.executable, "-m", "ziglang", "cc", f"-I{INCLUDE}", "-c", str(source), "-o", str(program)]
    subprocess.run([*clang, "-ffast-math", "-fno-fast-math"], check=True, timeout=60)
    refused = subprocess.run([*clang, "-ffast-math"], capture_output=True, text=True, timeout=60, check=False)
    assert "-ffast-math changes results" in refused.stderr
