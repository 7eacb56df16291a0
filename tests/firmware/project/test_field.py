"""Black boxes, counts and slots in every artefact: generated or refused, built, run, read from a log."""

import re
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import crtgen
from crtgen.api import Model
from crtgen.api.slot import make_slot
from crtgen.base.errors import UsageError
from crtgen.base.resources import runtime_dir
from crtgen.cli.app import app
from crtgen.firmware.builder.size import read_sizes
from crtgen.firmware.project import FRAMEWORKS
from crtgen.lab.measure.field_log import field_lines, read_field_log
from crtgen.lab.measure.recording import read_memory, runs_of
from tests.firmware.project.frameworks import LINK, STARTUP, emulated, run
from tests.firmware.project.test_exports import AS_EXPECTED, sketch
from tests.support import ROOT, require_tool
from tools import artefacts

DIGITS = ROOT / "demo" / "digits.tflite"
RUNS = 4

# Texts that show that a build has a feature: in one of the files each.
_SHOWN = {
    "record": (r"CRT_RECORD 8\n|CRT_RECORD=8|set\(CRT_RECORD 8 ", r"void crt_record_begin"),
    "watch": (
        r"#define CRT_DRIFT\n|CRT_DRIFT\)|CRT_DRIFT ",
        r"void crt_drift_begin",
        r"digits_drift_reference = ",
    ),
    "slots": (r"#define CRT_SLOTS\n|\(CRT_SLOTS\)", r"int32_t crt_slots_start", r"static int32_t crt_slot_"),
    "rows": (r"digits_push\(",),
    "steps": (r"digits_step\(",),
    "two cores": (r"crt_both\(", r"void crt_worker\("),
    "pipeline": (r"seen_push\(",),
}


def _texts(files: Mapping[str, bytes]) -> str:
    return "\n".join(data.decode() for path, data in files.items() if not path.endswith(".pack"))


@pytest.mark.parametrize("feature", artefacts.FEATURES)
@pytest.mark.parametrize("artefact", artefacts.ARTEFACTS)
def test_artefacts_have_a_feature_or_refuse_it(artefact: str, feature: str) -> None:
    made = artefacts.attempt(artefact, feature)
    if isinstance(made, str):
        assert f". {made}\n" in artefacts.PAGE.read_text(), "the page names each reason"
        return
    texts = _texts(made)
    for pattern in _SHOWN[feature]:
        assert re.search(pattern, texts), pattern


def test_the_page_has_the_table() -> None:
    """`python -m tools.artefacts` writes it."""
    assert artefacts.page() == artefacts.PAGE.read_text(encoding="utf-8")


def test_pages_name_files_that_a_library_has() -> None:
    """Each C file in the pages about the field is in a generated folder or in the runtime's headers."""
    kinds = [("library", feature) for feature in ("slots", "record", "watch")]
    made = [artefacts.attempt(*kind) for kind in (*kinds, ("Zephyr module", "slots"), ("server", "slots"))]
    known = {path.name for path in (runtime_dir() / "include").rglob("*.h")}
    for files in made:
        assert not isinstance(files, str)
        known |= {path.rpartition("/")[2] for path in files}
    for page in ("field.md", "recording.md", "slots.md"):
        text = (ROOT / "docs" / page).read_text()
        named = {name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.[ch])`", text)}
        assert named <= known | {"kws_interface.h", "main.c"}, page


@pytest.mark.qemu
def test_the_page_says_what_parts_cost(tmp_path: Path) -> None:
    """Code and constants on a Cortex-M4 with -Os, within a tenth: compilers differ."""
    gcc = require_tool("arm-none-eabi-gcc")
    _generate(tmp_path / "library", "", "mps2_an386", slots=True)
    parts = [["field", "crc32"], ["record"], ["drift"], ["slot", "slots"], ["flash_board"]]
    folder, sizes = tmp_path / "library", []
    core = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-std=c11", "-Os"]
    for names in parts:
        objects = [tmp_path / f"{name}.o" for name in names]
        for made in objects:
            source = folder / "model" / f"crt_{made.stem}.c"
            include = [f"-I{folder / 'runtime' / 'include'}", f"-I{folder / 'model'}"]
            subprocess.run([gcc, *core, *include, "-c", source, "-o", made], check=True, timeout=60)
        sizes.append(sum(read_sizes(made).flash for made in objects))
    page = (ROOT / "docs" / "field.md").read_text(encoding="utf-8")
    table = page[page.index("| part | flash |") :].partition("\n\n")[0]
    said = [int(n.replace(",", "")) for n in re.findall(r"\b\d[\d,]*\b", table.replace("392", ""))]
    assert sizes == pytest.approx(said, rel=0.1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"registry": True, "record": 8}, "a library with a registry has neither"),
        ({"target": "llvm", "record": 8}, "object files have neither"),
        ({"framework": "esp-idf", "slots": True}, "machine code of a Cortex-M"),
    ],
)
def test_what_is_refused(options: dict[str, object], reason: str) -> None:
    board = "host" if "framework" in options else "mps2_an386"
    with pytest.raises(UsageError, match=reason) as caught:
        crtgen.load(DIGITS).compile(board).generate("library", **options)  # type: ignore[arg-type]
    assert caught.value.hint


@pytest.mark.parametrize(("feature", "hint"), [("pipeline", "two libraries"), ("rows", "--feed")])
def test_a_slot_takes_whole_inputs(feature: str, hint: str) -> None:
    """Of a model that is fed with samples or rows, the network alone goes into a slot."""
    with pytest.raises(UsageError, match="a slot takes whole inputs") as caught:
        artefacts.compiled_for("mps2_an386", feature).generate("library", slots=True)
    assert hint in (caught.value.hint or "")


def _generate(folder: Path, framework: str, board: str, **options: object) -> Path:
    made = crtgen.load(DIGITS).compile(board)
    watched = {"digits": artefacts.reference()}
    made.generate("library", framework=framework, record=RUNS, watched=watched, **options).extract(folder)  # type: ignore[arg-type]
    return folder


_KEPT = r"""
#include <digits.h>
#include <digits_field.h>
#include <crt/record.h>
#include <stdio.h>
#include <string.h>

extern const struct crt_recorder digits_recorder;
static uint8_t storage[1024];

static int32_t save(void *context, uint32_t offset, const void *data, uint32_t size)
{
    if (offset + size > sizeof storage) {
        return -1;
    }
    memcpy(&storage[offset], data, size);
    return *(int *)context;
}

static int32_t load(void *context, uint32_t offset, void *data, uint32_t size)
{
    (void)context;
    memcpy(data, &storage[offset], size);
    return 0;
}

static void say(void *context, const char *text, uint32_t size)
{
    (void)context;
    printf("[12:00] %.*s", (int)size, text);
}

static void run(int8_t value)
{
    static int8_t image[64], scores[10];
    const struct digits_inputs inputs = {image};
    const struct digits_outputs outputs = {scores};
    memset(image, value, sizeof image);
    (void)digits_run(&inputs, &outputs);
}

static void switch_off(void)
{
    memset(digits_recorder.memory, 0, crt_record_size(&digits_recorder));
}

int main(void)
{
    int status = 0;
    const struct crt_field_port port = {.context = &status, .write = say, .save = save, .load = load};
    const struct crt_field_port none = {.write = NULL};
    crt_field_start(&digits_field, &port);
    for (int8_t i = 1; i <= 6; i++) {
        run(i);
    }
    const int kept = (int)crt_field_keep(&digits_field, &port);
    printf("kept %d of %u\n", kept, (unsigned)crt_field_size(&digits_field));
    switch_off();
    crt_field_start(&digits_field, &port);
    crt_field_send(&digits_field, &port);
    run(7);
    crt_field_start(&digits_field, &port); /* RAM is newer than storage */
    crt_field_send(&digits_field, &port);
    crt_field_send(&digits_field, &none);
    switch_off();
    storage[100] ^= 1; /* a cut of the power during save */
    crt_field_start(&digits_field, &port);
    run(8);
    crt_field_send(&digits_field, &port);
    status = -5;
    printf("kept %d\n", (int)crt_field_keep(&digits_field, &port));
    printf("kept %d\n", (int)crt_field_keep(&digits_field, &none));
    return 0;
}
"""


@pytest.mark.cc
def test_boxes_are_kept_sent_and_read(tmp_path: Path) -> None:
    """Storage outlives the power; what is damaged in it is dropped; a log is read among other lines."""
    require_tool("make", "apt install make")
    root = _generate(tmp_path / "lib", "make", "host")
    (root / "example" / "main.c").write_text(_KEPT)
    strict = "CFLAGS=-Wall -Wextra -Wconversion -Werror -fsanitize=address,undefined"
    run("make", "-j2", "example", strict, where=root)
    said = run("build/example.elf", where=root)
    assert re.findall("kept.*", said) == [f"kept 0 of {16 + 16 + RUNS * 84}", "kept -5", "kept -6"]
    info = crtgen.load(DIGITS).compile("host").modules[0].info
    found = []
    for number, part in enumerate(re.split(r"(?=\[12:00\] crt box digits \w+ 00000000)", said)[1:]):
        (log := tmp_path / f"{number}.log").write_text(part)
        memory = read_field_log(log, "digits").boxes["digits"]
        found.append([int(r.inputs[0].flat[0]) for r in read_memory(memory, info, runs_of(memory, info), 0)])
    assert found == [[3, 4, 5, 6], [4, 5, 6, 7], [8]]
    (log := tmp_path / "all.log").write_text(said)
    words = ["record", str(root), "--file", str(log), "-o", str(tmp_path / "f.npz")]
    done = CliRunner().invoke(app, [*words, "--cbor", str(tmp_path / "f.cbor")])
    assert done.exit_code == 0, done.output
    assert "1 runs of digits" in done.output
    replayed = ["replay", str(tmp_path / "f.npz"), str(DIGITS), "--board", "host"]
    assert CliRunner().invoke(app, replayed).exit_code == 0
    for words, text in (
        (["record", str(root)], "a library has no server that --port could ask"),
        (["record", str(root), "--file", str(log), "--model", "kws"], "there is no black box of kws"),
        (["record", str(root), "--file", str(DIGITS)], "the log has no complete black box of digits"),
    ):
        done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "none.npz")])
        assert done.exit_code == 2
        assert text in done.output


def _line(offset: int, data: bytes, total: int = 40) -> str:
    text = f"crt box digits {total:08x} {offset:08x} {data.hex()}"
    return f"{text} {zlib.crc32(text.encode()):08x}\n"


def test_logs_with_gaps_and_damage(tmp_path: Path) -> None:
    first, second = _line(0, bytes(32)), _line(32, bytes(8))
    file = tmp_path / "log"
    good = "noise\n" + first + "I (12) wifi: up\n" + second
    for text, found in (
        (good, 40),
        (first + good, 40),
        (good + first, 40),
        (first, None),
        (second, None),
        (first + first.replace("000 000", "000 001") + second.replace("0 28", "1 28"), 40),
        (first.replace("box digits", "box digit5") + second, None),
        (first + _line(40, bytes(8)) + second, None),
        (first.rstrip() + "0\n" + second, None),
    ):
        file.write_text(text)
        if found is None:
            with pytest.raises(UsageError, match="no complete black box of digits"):
                read_field_log(file, "digits")
        else:
            assert len(read_field_log(file, "digits").boxes["digits"]) == found
    file.write_bytes(b"CRTB" + bytes(30))
    assert len(read_field_log(file, "digits").boxes["digits"]) == 34


@pytest.mark.qemu
@pytest.mark.parametrize("framework", ["arduino", "platformio"])
def test_a_sketch_with_everything(framework: str, tmp_path: Path) -> None:
    """Arduino gives files no options: the definitions are in a file that they include."""
    root = _generate(tmp_path / "digits", framework, "mps2_an386", slots=True)
    lines = emulated(sketch(root, tmp_path / "sketch"))
    assert AS_EXPECTED in lines
    _assert_one_run(lines, tmp_path)


def _assert_one_run(lines: list[str], folder: Path) -> None:
    (log := folder / "log").write_text("\n".join(lines))
    memory = read_field_log(log, "digits").boxes["digits"]
    info = crtgen.load(DIGITS).compile("mps2_an386").modules[0].info
    (found,) = read_memory(memory, info, runs_of(memory, info), 0)
    assert found.outputs[0].ravel().tolist() == [-128, -128, -123, 119, -128, -128, -128, -128, -125, -128]


_UPDATED = r"""
#include <digits_field.h>
#include <stdio.h>
#include <string.h>

static const uint8_t image[] = {
#include "image.inc"
};

static int32_t read_image(void *context, uint32_t offset, void *data, uint32_t size)
{
    (void)context;
    memcpy(data, &image[offset], size);
    return 0;
}

static void say(void *context, const char *text, uint32_t size)
{
    (void)context;
    printf("%.*s", (int)size, text);
}

static int32_t refuse(const void *data, uint32_t size, const uint8_t *signature)
{
    (void)data;
    (void)size;
    return (signature[0] == 1u) ? 0 : -1;
}

int main(void)
{
    struct crt_field_port port = {.write = say, .flash = &crt_flash_board};
    struct crt_slots_source source = {read_image, NULL, sizeof image};
    static int8_t pixels[64], scores[10];
    const struct digits_inputs inputs = {pixels};
    const struct digits_outputs outputs = {scores};
    memset(pixels, 3, sizeof pixels);
    printf("start %d\n", (int)crt_field_start(&digits_field, &port));
    (void)digits_run_newest(&inputs, &outputs);
    printf("built-in %d\n", crt_field_slot(&digits_field) == NULL);
    printf("update %d\n", (int)crt_field_update(&digits_field, &source));
    printf("still built-in %d\n", crt_field_slot(&digits_field) == NULL);
    printf("again %d\n", (int)crt_field_start(&digits_field, &port));
    printf("version %u, trial %d\n", (unsigned)crt_field_slot(&digits_field)->header->version,
           digits_field.slots->last.trial);
    (void)digits_run_newest(&inputs, &outputs);
    crt_field_send(&digits_field, &port);
    port.verify = refuse;
    printf("unsigned %d\n", (int)crt_field_start(&digits_field, &port));
    printf("built-in %d\n", crt_field_slot(&digits_field) == NULL);
    source.size = 40;
    printf("short %d\n", (int)crt_field_update(&digits_field, &source));
    port.flash = NULL;
    printf("no flash %d\n", (int)crt_field_start(&digits_field, &port));
    return digits_run_newest(&inputs, &outputs);
}
"""


@pytest.mark.qemu
@pytest.mark.parametrize("framework", ["make", "cmsis-pack"])
def test_a_slot_of_a_library(framework: str, tmp_path: Path) -> None:
    """A program with a main of its own takes an image; its runs are recorded apart."""
    require_tool("arm-none-eabi-gcc", "apt install gcc-arm-none-eabi")
    root = _generate(tmp_path / "lib", framework, "mps2_an386", slots=True)
    image = make_slot(crtgen.load(DIGITS).compile("mps2_an386"), "b", version=7)
    (root / "image.inc").write_text(", ".join(map(str, image.data)))
    (root / "main.c").write_text(_UPDATED)
    (root / "startup.c").write_text(STARTUP)
    core = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-O1", "-Wall", "-Wextra")
    code = [path for path in (root / "model").iterdir() if path.suffix in (".c", ".S")]
    includes = ("-Imodel", "-Iruntime/include", "-I.")
    run(
        "arm-none-eabi-gcc",
        *core,
        *includes,
        *code,
        "main.c",
        "startup.c",
        *LINK,
        "-o",
        "app.elf",
        where=root,
    )
    lines = emulated(root / "app.elf")
    told = [line for line in lines if not line.startswith("crt ")]
    assert told == [
        *("start 0", "built-in 1", "update 0", "still built-in 1", "again 0", "version 7, trial 1"),
        *("unsigned 0", "built-in 1", "short -34", "no flash -1"),
    ]
    (log := tmp_path / "log").write_text("\n".join(lines))
    memory = read_field_log(log, "digits").boxes["digits"]
    model = crtgen.load(DIGITS)
    assert isinstance(model, Model)
    info = model.compile("mps2_an386").modules[0].info
    (found,) = read_memory(memory, info, runs_of(memory, info), 0)
    (expected,) = next(iter(model.graph.run([(found.inputs[0],)])))
    np.testing.assert_array_equal(found.outputs[0], expected)
    assert found.inputs[0].max() == 3


@pytest.mark.cc
def test_the_example_of_a_pipeline_captures(tmp_path: Path) -> None:
    """With one definition each sample that the sensor gives goes to the log, before it is used."""
    gcc, root = require_tool("gcc"), tmp_path / "lib"
    artefacts.compiled_for("host", "pipeline").generate("library", record=2).extract(root)
    code = [path for path in (root / "model").iterdir() if path.suffix == ".c"]
    strict = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-DCRT_CAPTURE_SAMPLES")
    folders = ("-Imodel", "-Iruntime/include")
    run(gcc, *strict, *folders, "example/main.c", *code, "-lm", "-o", "example.out", where=root)
    taken = [
        line for line in field_lines(run("./example.out", where=root).encode())[0] if line.kind == "take"
    ]
    assert [(line.model, line.offset, len(line.data)) for line in taken] == [
        ("seen", 16 * row, 16) for row in range(16)
    ]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_file_of_the_field_is_compiled(framework: str) -> None:
    """The wrapper names each source that was added."""
    board = "host" if FRAMEWORKS[framework].portable else "mps2_an386"
    slots = not FRAMEWORKS[framework].portable
    made = crtgen.load(DIGITS).compile(board).generate("library", framework=framework, record=8, slots=slots)
    files = made.project.files
    if FRAMEWORKS[framework].flat:
        return
    wrapper = _texts(
        {p: d for p, d in files.items() if not p.startswith(("model/", "runtime/", "project.json"))}
    )
    for path in (path for path in files if path.startswith("model/") and path.endswith(".c")):
        assert path in wrapper
