"""Jobs for Arm's driver of the NPU, whose place is taken by a stub with its public functions."""

import ctypes
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from crtgen import api
from crtgen.base.errors import UsageError
from crtgen.compiler.byoc import read_generator
from crtgen.npu.config import CONFIGS
from crtgen.npu.model import Npu
from tests.support import ROOT, require_tool

pytest.importorskip("ethosu")

_DIGITS = ROOT / "demo" / "digits.tflite"
_ARM = "ethos-u:config=ethos-u55-128,driver=arm"
_STUB = """
#include "ethosu_driver.h"
typedef int (*invoked)(const void *, int, uint64_t *, const size_t *, int);
invoked on_invoke;
int released, absent;
static struct ethosu_driver only;
struct ethosu_driver *ethosu_reserve_driver(void) { return absent ? NULL : &only; }
void ethosu_release_driver(struct ethosu_driver *drv) { released += drv == &only; }
int ethosu_invoke_v3(struct ethosu_driver *drv, const void *data, const int size, uint64_t *const base,
                     const size_t *bytes, const int count, void *user)
{
    (void)drv, (void)user;
    return on_invoke(data, size, base, bytes, count);
}
"""
_INVOKED = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.c_int,
)


def _written(folder: Path, board: str) -> list[Path]:
    """The sources of a library with the stub beside it."""
    compiled = api.load(_DIGITS).compile(board, generators=[read_generator(_ARM)], fallback=True)
    for path, data in compiled.generate("library").project.sources.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (folder / "ethosu_driver.h").write_bytes((Path(__file__).parent / "ethosu_driver.h").read_bytes())
    (folder / "stub.c").write_text(_STUB)
    return [*(folder / "model").rglob("*.c"), folder / "stub.c"]


def _compile(folder: Path, compiler: str, sources: list[Path], *options: str) -> Path:
    made = folder / "digits.so"
    folders = [f"-I{folder / name}" for name in ("", "model", "runtime/include")]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", *folders]
    command = [require_tool(compiler), *flags, *options, *map(str, sources), "-o", str(made)]
    subprocess.run(command, check=True, timeout=120)
    return made


@pytest.mark.cc
def test_the_driver_gets_jobs_that_the_model_can_run(tmp_path: Path) -> None:
    library = ctypes.CDLL(str(_compile(tmp_path, "gcc", _written(tmp_path, "host"), "-shared", "-fPIC")))
    failure = ctypes.c_int.in_dll(library, "crt_npu_failure")
    seen: list[tuple[int, ...]] = []

    def invoked(data: int, size: int, base: object, bytes_of: object, count: int) -> int:
        payload = ctypes.string_at(data, size)
        fourcc, *header = struct.unpack_from("<4s7I", payload)
        assert fourcc == b"COP1"
        stream = payload[32:]
        assert data % 16 == 0
        seen.append(tuple(header))
        sizes = ctypes.cast(bytes_of, ctypes.POINTER(ctypes.c_size_t))  # type: ignore[arg-type]
        bases = ctypes.cast(base, ctypes.POINTER(ctypes.c_uint64))  # type: ignore[arg-type]
        regions = {}
        for i in (i for i in range(count) if sizes[i]):
            assert bases[i] % 16 == 0
            memory = (ctypes.c_uint8 * sizes[i]).from_address(bases[i])
            regions[i] = np.frombuffer(memory, np.uint8)
        assert 2 not in regions, "Arm's driver may put its fast memory there"
        Npu(CONFIGS["ethos-u55-128"], regions).run(stream)
        return 0

    callback = _INVOKED(invoked)
    ctypes.c_void_p.in_dll(library, "on_invoke").value = ctypes.cast(callback, ctypes.c_void_p).value
    cases = np.load(ROOT / "demo" / "digits.npz")
    for case in range(3):
        x, wanted = cases[f"case{case}_input0"].copy(), cases[f"case{case}_output0"]
        got = np.zeros_like(wanted)
        pointers = [(ctypes.c_void_p * 1)(array.ctypes.data) for array in (x, got)]
        assert library.digits_run(*map(ctypes.byref, pointers)) == 0
        np.testing.assert_array_equal(got, wanted)
    config, arch = CONFIGS["ethos-u55-128"].word, 0x10060000
    words = seen[0][6] >> 16
    assert seen == [(0x100001, config, arch, 5, 5, 5, words << 16 | 2)] * 3
    assert ctypes.c_int.in_dll(library, "released").value == 3

    on_failure = _INVOKED(lambda *_: -1)
    ctypes.c_void_p.in_dll(library, "on_invoke").value = ctypes.cast(on_failure, ctypes.c_void_p).value
    assert library.digits_run(*map(ctypes.byref, pointers)) == failure.value == -29
    ctypes.c_int.in_dll(library, "absent").value = 1
    assert library.digits_run(*map(ctypes.byref, pointers)) == failure.value == -20


@pytest.mark.qemu
def test_it_compiles_for_a_core(tmp_path: Path) -> None:
    sources = _written(tmp_path, "mps3_an547")
    options = ("-mcpu=cortex-m55", "-mfloat-abi=hard", "-O2", "-r", "-nostdlib")
    assert _compile(tmp_path, "arm-none-eabi-gcc", sources, *options).is_file()


def test_who_brings_the_driver() -> None:
    compiled = api.load(_DIGITS).compile("mps3_an547", generators=[read_generator(_ARM)], fallback=True)
    with pytest.raises(UsageError, match="nothing here brings Arm's driver") as caught:
        compiled.generate("server")
    assert "--platform zephyr" in caught.value.hint
    project = compiled.generate("server", platform="zephyr").project
    sources = project.sources
    assert b"CONFIG_CRTGEN_NPU=y" in sources["prj.conf"]
    assert b"ethosu_core_driver" in sources["crtgen.cmake"]
    with pytest.raises(UsageError, match="is not a driver of the NPU"):
        read_generator("ethos-u:config=board,driver=linux")
