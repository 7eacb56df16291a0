"""Images for slots as files: what is refused, deltas, signatures, and the command."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typer.testing import CliRunner

from crtgen.api.slot import Delta, sign
from crtgen.base.errors import CorruptModelError, UsageError
from crtgen.boards.core import CORES
from crtgen.cli.app import app
from crtgen.compiler.codegen.slot_image import SlotImage, SlotTensor, core_bits
from crtgen.network.ir import DType
from tests.runtime.build import RUNTIME
from tests.support import ROOT, require_tool

IMAGE = SlotImage(
    name="kws",
    version=3,
    origin=0x200000,
    work=0x20200000,
    work_size=96,
    stack=200,
    core=3,
    entry=0x200080,
    stateful=True,
    inputs=(SlotTensor("x", (1, 4), DType.INT8, 0.5, -3),),
    outputs=(SlotTensor("y", (1, 2), DType.FLOAT32, 0.0, 0),),
    code=bytes(range(200)),
)


def test_a_file_is_read_as_it_was_written() -> None:
    assert SlotImage.read(IMAGE.data, "file") == IMAGE
    assert IMAGE.interface != replace(IMAGE, stateful=False).interface
    other = replace(IMAGE, inputs=(replace(IMAGE.inputs[0], zero_point=-4),))
    assert IMAGE.interface != other.interface


def test_every_flipped_byte_and_every_cut_is_refused() -> None:
    data = IMAGE.data
    for at in range(len(data)):
        with pytest.raises(CorruptModelError):
            SlotImage.read(data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :], "file")
        with pytest.raises(CorruptModelError):
            SlotImage.read(data[:at], "file")
    with pytest.raises(CorruptModelError, match="the header says 344 bytes, but the file has 345"):
        SlotImage.read(data + b"\0", "file")


def test_a_delta_makes_the_new_image_of_the_old_one() -> None:
    new = replace(
        IMAGE, version=4, origin=0x280000, code=IMAGE.code[:100] + b"new weights" + IMAGE.code[111:]
    )
    delta = Delta.between(IMAGE, new, 16)
    assert Delta.read(delta.data, "file") == delta
    assert delta.apply(IMAGE.data) == new.data
    assert all(offset % 16 == 0 for offset, _ in delta.parts())
    with pytest.raises(UsageError, match="another image"):
        delta.apply(new.data)
    with pytest.raises(UsageError, match="differ in code or plan"):
        Delta.between(IMAGE, replace(new, code=new.code + b"more"), 16)


def test_broken_deltas_are_refused() -> None:
    new = replace(IMAGE, version=4, code=IMAGE.code[::-1])
    data = Delta.between(IMAGE, new, 16).data
    for end in range(len(data)):
        with pytest.raises(CorruptModelError):
            Delta.read(data[:end], "file")
    first = 28  # where the first run is
    with pytest.raises(CorruptModelError, match="not in ascending order"):
        Delta.read(data[:first] + b"\xff\xff\xff\x7f" + data[first + 4 :], "file")


@pytest.mark.parametrize("unit", [16, 32, 256])
def test_a_delta_carries_the_signature(tmp_path: Path, unit: int) -> None:
    """Of signed images, old or new: what is made is the signed image, in whole units of the flash."""
    key = tmp_path / "key.pem"
    secret = Ed25519PrivateKey.generate()
    key.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    new = sign(replace(IMAGE, version=4, origin=0x300000, entry=0x300080), key)
    for old in (IMAGE, sign(IMAGE, key)):
        delta = Delta.between(old, new, unit)
        assert Delta.read(delta.data, "file") == delta
        assert delta.apply(old.data) == new.data
        assert delta.end == len(new.data)
        assert all(offset % unit == 0 for offset, _ in delta.parts())
        covered = [(at, len(p) if isinstance(p, bytes) else p) for at, p in delta.parts()]
        assert sum(size for _, size in covered) == len(new.data)
    with pytest.raises(CorruptModelError, match="the signature is cut short"):
        Delta.read(replace(delta, runs=((len(IMAGE.image), b"short"),)).data, "file")


def test_a_signature_is_of_the_whole_image(tmp_path: Path) -> None:
    secret = Ed25519PrivateKey.generate()
    key = tmp_path / "key.pem"
    key.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    signed = sign(IMAGE, key)
    assert SlotImage.read(signed.data, "file") == signed
    secret.public_key().verify(signed.data[-64:], IMAGE.data)
    key.write_text("no key")
    with pytest.raises(UsageError, match="not a private key in PEM"):
        sign(IMAGE, key)


@pytest.mark.cc
@pytest.mark.parametrize("name", [name for name in CORES if not CORES[name].older and "+nodsp" not in name])
def test_the_core_of_an_image_is_what_the_compiler_says(tmp_path: Path, name: str) -> None:
    """``crt_slot_core`` for a core has the bits of an image for it."""
    source = tmp_path / "core.c"
    source.write_text(
        '#include "crt_slot.c"\nuint32_t bits(void);\nuint32_t bits(void) { return crt_slot_core(); }\n'
    )
    out = tmp_path / "core.s"
    gcc = require_tool("arm-none-eabi-gcc")
    flags = [*CORES[name].gcc_flags, "-Os", "-S", "-w", f"-I{RUNTIME / 'include'}", f"-I{RUNTIME / 'src'}"]
    subprocess.run([gcc, *flags, str(source), "-o", str(out)], check=True, timeout=60)
    found = re.search(r"^bits:.*?movs\s+r0, #(\d+)", out.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    assert int(found[1]) == core_bits(CORES[name])


@pytest.mark.cc
def test_the_command_writes_image_header_and_delta(tmp_path: Path) -> None:
    model = str(ROOT / "demo" / "digits.tflite")
    first, header, delta = (str(tmp_path / name) for name in ("v1.slot", "digits_interface.h", "v2.delta"))

    def run(*words: str) -> dict[str, object]:
        done = CliRunner().invoke(app, ["slot", model, *words, "--json"])
        assert done.exit_code == 0, done.output
        return dict(json.loads(done.stdout))

    about = run("-o", first, "--header", header)
    image = SlotImage.read(Path(first).read_bytes(), first)
    assert (about["interface"], about["bytes"]) == (image.interface.hex(), len(image.data))
    digest = ", ".join(f"0x{byte:02x}" for byte in image.interface)
    assert f"#define DIGITS_INTERFACE {{{digest}}}" in Path(header).read_text()
    second = run("-o", delta, "--slot", "b", "--since", first, "--version", "2")
    made = Delta.read(Path(delta).read_bytes(), delta).apply(image.data)
    assert SlotImage.read(made, delta).version == 2
    assert int(str(second["bytes"])) < len(image.data) / 10
    key = tmp_path / "key.pem"
    secret = Ed25519PrivateKey.generate()
    key.write_bytes(secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    run("-o", delta, "--slot", "b", "--since", first, "--key", str(key))
    made = Delta.read(Path(delta).read_bytes(), delta).apply(image.data)
    signed = SlotImage.read(made, delta)
    secret.public_key().verify(signed.signature, signed.image)
    refused = CliRunner().invoke(app, ["slot", model, "--slot", "c"])
    assert refused.exit_code == 2
    assert "there is no slot c" in refused.output


@pytest.mark.cc
def test_firmware_compiles_with_the_interface(tmp_path: Path) -> None:
    model = str(ROOT / "demo" / "digits.tflite")
    header = tmp_path / "digits_interface.h"
    done = CliRunner().invoke(app, ["slot", model, "-o", str(tmp_path / "a.slot"), "--header", str(header)])
    assert done.exit_code == 0, done.output
    (tmp_path / "main.c").write_text(
        '#include "digits_interface.h"\n'
        "static const uint8_t wanted[] = DIGITS_INTERFACE;\n"
        "int32_t infer(struct crt_slot *slot, const int8_t *image, int8_t *scores);\n"
        "int32_t infer(struct crt_slot *slot, const int8_t *image, int8_t *scores)\n{\n"
        "    const struct crt_slot_place place = {.origin = 0x200000, .size = 4096, .interface = wanted};\n"
        "    const struct digits_inputs inputs = {image};\n"
        "    const struct digits_outputs outputs = {scores};\n"
        "    const int32_t error = crt_slot_open(&place, slot);\n"
        "    return (error != 0) ? error : digits_run(slot, &inputs, &outputs);\n}\n"
    )
    flags = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-mcpu=cortex-m4", "-mthumb", "-c")
    command = [
        require_tool("arm-none-eabi-gcc"),
        *flags,
        f"-I{RUNTIME / 'include'}",
        "main.c",
        "-o",
        "main.o",
    ]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=60)


@pytest.mark.cc
def test_a_folder_may_say_where_slots_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``crtgen.toml`` in the place of the board's file; what it says is checked likewise."""
    said = """
[slots]
driver = "stm32l4"
work = 0x20014000
work_size = "16 KiB"
log = 0x080fe000
log_size = "8 KiB"

[slot.here]
memory = "flash"
origin = 0x08080000
size = "128 KiB"
"""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    settings = tmp_path / "crtgen.toml"
    settings.write_text(said)
    words = ["slot", str(ROOT / "demo" / "digits.tflite"), "--board", "disco_l475_iot1", "--slot", "here"]
    done = CliRunner().invoke(app, [*words, "-o", "x.slot", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["origin"] == 0x08080000
    settings.write_text(said.replace("0x08080000", "0x08080100"))
    refused = CliRunner().invoke(app, [*words, "-o", "x.slot"])
    assert refused.exit_code == 2
    assert "slot.here: origin and size have to be multiples of 4096 B" in " ".join(refused.output.split())
