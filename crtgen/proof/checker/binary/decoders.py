"""Checks that independent decoders agree on an instruction, by assembling its text with binutils and with
LLVM.

The checker runs objdump's text. If an assembler produces other bytes from it, or refuses it, the decoders
disagree. Undefined encodings have no text that assembles to their bytes.
"""

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from crtgen.base.child import run_to_end
from crtgen.base.temporary import TemporaryFolder
from crtgen.proof.checker.binary.image import DecodedImage, DecodedInstruction, image_bytes, tool
from crtgen.proof.checker.refusal import Refusal

__all__ = ["agree", "decoders"]

_SECONDS = 120
_CORES = {
    "armv6-m": "cortex-m0plus",
    "armv7-m": "cortex-m3",
    "armv7e-m": "cortex-m7",
    "armv8-m.base": "cortex-m23",
    "armv8-m.main": "cortex-m33",
    "armv8.1-m.main": "cortex-m55",
}
_EXTENSIONS = {"armv7e-m": ("fp",), "armv8-m.main": ("dsp", "fp"), "armv8.1-m.main": ("mve.fp", "fp.dp")}
_BRANCH = re.compile(r"(b|bl|b[a-z]{2}|cbn?z|le|wls|wlstp|dlstp|letp)(\.\w+)? ")


def agree(image: DecodedImage, used: Iterable[int]) -> dict[str, str]:
    """Return the version and the digest of each decoder that agrees with the instructions at these addresses.

    LLVM comes with the package ``ziglang`` and is only used if that is installed. Raises ``Refusal`` for the
    first instruction on which two decoders differ.
    """
    code = [image.instructions[address] for address in sorted(used)]
    assembler = tool("as")
    core = [f".arch {image.architecture}"]  # binutils 2.40 does not know every core by its name
    core += [f".arch_extension {name}" for name in _EXTENSIONS.get(image.architecture, ())]
    source = [*core, *map(_for_binutils, code)]
    _compare(image, code, "binutils", [assembler, "-o", "used.o", "used.s"], source)
    zig = _zig()
    if zig is not None:
        target = ["-target", "thumb-freestanding-eabi", "-c", "used.s", "-o", "used.o"]
        source = [f".cpu {_CORES[image.architecture]}", *map(_for_llvm, code)]
        _compare(image, code, "LLVM", [zig, "cc", *target], source)
    return decoders()


def decoders() -> dict[str, str]:
    objdump, assembler, zig = tool("objdump"), tool("as"), _zig()
    said = {
        "binutils": f"{_version([objdump, '--version'])}, SHA-256 {_digest(objdump)} and {_digest(assembler)}"
    }
    if zig is not None:
        said["llvm"] = f"{_version([zig, 'cc', '--version'])} of zig, SHA-256 {_digest(zig)}"
    return said


def _zig() -> str | None:
    spec = find_spec("ziglang")
    if spec is None:
        return None
    return shutil.which("zig", path=str(Path(str(spec.origin)).parent)) or sys.executable


def _compare(
    image: DecodedImage,
    code: Sequence[DecodedInstruction],
    who: str,
    command: Sequence[str],
    source: Sequence[str],
) -> None:
    with TemporaryFolder() as directory:
        (directory / "used.s").write_text("\n".join([".syntax unified", ".thumb", *source, ""]))
        for each in (command, [tool("objcopy"), "-O", "binary", "-j", ".text", "used.o", "used.bin"]):
            alone = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(directory)}
            status, output = run_to_end(each, time_limit=_SECONDS, directory=directory, environment=alone)
            if status != 0:
                raise Refusal(f"{who} does not know the instructions: {output.strip()[:300]}")
        made = (directory / "used.bin").read_bytes()
    at = 0
    for i in code:
        size = i.following - i.address
        if made[at : at + size] != image_bytes(image, i.address, size):
            raise Refusal(f"{i.address:#x}: objdump and {who} disagree about {i.text!r}")
        at += size


def _for_binutils(i: DecodedInstruction) -> str:
    # The text with targets of branches relative to it. A sum of a register and a small number that goes to
    # the same register has two encodings of 16 bits, of which the assembler writes one only. Clang writes the
    # other (ADD and SUB, immediate, T1).
    if (real := _real_number(i)) is not None:
        return real
    relative, small = _relative(i), _SMALL.fullmatch(i.text)
    if small and i.following == i.address + 2 and small[2] == small[3]:
        code = 0x1E00 if small[1] == "subs" else 0x1C00
        return f".inst.n {code | int(small[4]) << 6 | int(small[2]) * 9:#x}"
    if relative is None and _VENEER.fullmatch(i.text):  # the assembler has no distance of -0
        return ".inst.w 0xf85ff000"
    return i.text if relative is None else f"{relative[0]}. + ({relative[1]})"


def _for_llvm(i: DecodedInstruction) -> str:
    # The text for LLVM's assembler: no width if there is only one, and no address of PC.
    if (real := _real_number(i)) is not None:
        return real
    relative = _relative(i)
    if relative is not None:
        return f"{relative[0]}#{relative[1] - 4}"
    if i.name == "add" and i.operands[1:2] == ("pc",):
        return f"adr {i.operands[0]}, {i.operands[2]}"
    if _ONE_WIDTH.match(i.text):
        return i.text.replace(".w ", " ", 1)
    return "ldr.w pc, [pc, #-0]" if _VENEER.fullmatch(i.text) else i.text


def _real_number(i: DecodedInstruction) -> str | None:
    # VMOV.F32 of a number, which objdump prints as the 8 bits that hold it (VFPExpandImm).
    match = _REAL.fullmatch(i.text)
    if match is None:
        return None
    code = int(match[2])
    exponent = (code >> 4 & 3) + (-3 if code & 0x40 else 1)
    return f"{match[1]}#{(-1) ** (code >> 7) * (16 + (code & 15)) / 16 * 2.0**exponent}"


_REAL = re.compile(r"(vmov\S*\.f32 s\d+, )#(\d+)")
_VENEER = re.compile(r"ldr\.w pc, \[pc\]")
_SMALL = re.compile(r"(adds|subs) r([0-7]), r([0-7]), #([0-7])")
_ONE_WIDTH = re.compile(
    r"mul\.w |(adcs?|sbcs?|ands?|orrs?|eors?|bics?|mvns?|rsbs?)\.w .*#|(ldr|str)\w*\.w .*#-"
)


def _relative(i: DecodedInstruction) -> tuple[str, int] | None:
    # Text before the target of a branch, and its distance.
    target = i.operands[-1] if i.operands else ""
    if not _BRANCH.match(i.text) or not re.fullmatch(r"[0-9a-f]+", target) or target.startswith("r"):
        return None
    return i.text[: i.text.rindex(target)], int(target, 16) - i.address


def _version(command: Sequence[str]) -> str:
    return _first_line(tuple(command), _identity(command[0]))


def _digest(path: str) -> str:
    return _sha256(path, _identity(path))


def _identity(path: str) -> tuple[int, ...]:
    # Another one as soon as the file is another one.
    found = Path(path).stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@cache
def _first_line(command: tuple[str, ...], _: tuple[int, ...]) -> str:
    _status, output = run_to_end(command, time_limit=_SECONDS)
    return output.partition("\n")[0].strip()


@cache
def _sha256(path: str, _: tuple[int, ...]) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
