"""Pipelines: the windows that ``_push`` gives the network, however samples come in."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crtgen import api
from crtgen.boards import board_of_core
from crtgen.cli.app import app
from crtgen.proof.certificate import stream_of
from crtgen.proof.checker import SampleStream, WindowsProof, prove_windows
from crtgen.proof.printed import lines_of_windows
from tests.network.pipeline.files import marvin, yes_or_no
from tests.proof.checker.test_application import LINK, START, rebuilt
from tests.support import nightly

pytestmark = pytest.mark.qemu

_MAIN = """
int main(void)
{
    for (;;) {
        struct NAME_event event;
        if (NAME_push((const void *)sensor, (uint32_t)sensor[0], &event) > 0) decision = 1;
        if (sensor[1]) NAME_reset();
    }
}
"""
_MOVES = """[pipeline]
name = "moves"
sensor = { kind = "imu", axes = 3, rate = 100 }
[features]
preset = "edge-impulse-flatten"
statistics = ["mean"]
frame = 8
hop = 3
"""
_DECIDED = """[decision]
above = 3.0
average = 2
"""


def library(file: Path, folder: Path, core: str = "cortex-m4") -> Path:
    """The library of a pipeline, with an application around it that is not compiled yet."""
    model = api.load_network(file)
    model.compile(board_of_core(core)).generate("library").extract(folder)
    (folder / "app.ld").write_text(LINK)
    main = START.replace("MODEL.h", "NAME_pipeline.h") + _MAIN
    (folder / "main.c").write_text(main.replace("NAME", model.name))
    return folder


def windows(file: Path, folder: Path, *flags: str, core: str = "cortex-m4") -> WindowsProof:
    model = api.load_network(file)
    assert model.pipeline is not None
    return prove_windows(rebuilt(folder, *flags, core=core), file, stream_of(model.name, model.pipeline))


@pytest.fixture(scope="module")
def moves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Windows of 8 samples, 3 new ones each, and an event for each."""
    folder = tmp_path_factory.mktemp("moves")
    (folder / "moves.toml").write_text(_MOVES)
    library(folder / "moves.toml", folder / "p")
    return folder


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline with a decision: samples are in the arena, and those of the next window are beside it."""
    folder = tmp_path_factory.mktemp("decided")
    (folder / "moves.toml").write_text(_MOVES + _DECIDED)
    library(folder / "moves.toml", folder / "p")
    return folder


def test_windows_of_moves(moves: Path) -> None:
    found = windows(moves / "moves.toml", moves / "p", "-O2")  # which copies the ends of loops
    assert not found.wrong
    assert (found.stream.span, found.stream.hop, found.stream.size, found.most) == (8, 3, 12, 12)
    assert found.stream.reports
    text = "\n".join(lines_of_windows(found))
    assert "the network gets the first 8 samples, then the last 8 after every 3" in text
    assert "if calls of moves_push have 0 to 12 samples each" in text
    assert "trusted: memcpy, as in 6" in text


@pytest.mark.parametrize("flags", [nightly("-O3"), nightly("-DCRT_SHARED_ARENA=9999")])
def test_compilers(flags: str, moves: Path) -> None:
    """Loops whose end is copied; samples that are kept beside an arena that other models use."""
    if "SHARED" in flags:
        main = (moves / "p" / "main.c").read_text()
        (moves / "p" / "main.c").write_text(
            f"__attribute__((aligned(16))) unsigned char crt_shared_arena[9999];\n{main}"
        )
    try:
        assert not windows(moves / "moves.toml", moves / "p", flags).wrong
    finally:
        if "SHARED" in flags:
            (moves / "p" / "main.c").write_text(main)


@pytest.mark.models
@pytest.mark.parametrize(
    ("described", "core"),
    [
        nightly(marvin, "cortex-m4"),
        nightly(marvin, "cortex-m0plus"),
        nightly(marvin, "cortex-m55"),
        nightly(yes_or_no, "cortex-m4"),
    ],
)
def test_windows_of_wake_words(described: object, core: str, tmp_path: Path) -> None:
    """A network with states, a zero before the first sample, and decisions over several runs."""
    file = described(tmp_path)  # type: ignore[operator]
    found = windows(file, library(file, tmp_path / "p", core), core=core)
    assert not found.wrong
    assert found.most == 4 * found.stream.hop


_REST = "count -= part;"
_FULL = "if (pipeline.filled == 8) {"
_COUNTED = "pipeline.taken += part;"
_CLEARED = "(void)memset(&pipeline, 0, sizeof pipeline);"
_NEXT = "pipeline.samples, SAMPLES + 9, sizeof pipeline.samples"
_NOT_THE_SIGNAL = "in the network's window is not the signal's"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        # The window moves by another number of samples, or not at all.
        (_NEXT, _NEXT.replace("9", "6"), _NOT_THE_SIGNAL),
        nightly(_NEXT, _NEXT.replace(" + 9", ""), _NOT_THE_SIGNAL),
        ("pipeline.filled = 5;", "pipeline.filled = 4;", "are not copied to the end"),
        nightly(
            "SAMPLES, pipeline.samples, sizeof", "SAMPLES, pipeline.samples, 48 + 0 * sizeof", _NOT_THE_SIGNAL
        ),
        # A sample comes twice, or is dropped.
        ("samples += 3 * part;", "samples += 3 * (part - (count > part));", ""),
        nightly("samples += 3 * part;", "samples += 3 * part + 3 * (count > 9);", ""),
        nightly(_REST, "count -= part + (count == part + 1);", ""),
        nightly("3 * part * sizeof", "(3 * part - (part == 2)) * sizeof", ""),
        nightly("SAMPLES + (3 * pipeline.filled)", "SAMPLES + (3 * (8 - room - (part > 2)))", ""),
        nightly("const uint32_t room = 8", "const uint32_t room = 7", ""),
        # The network runs too early, too late, twice, or only after some calls.
        (_FULL, "if (pipeline.filled >= 7) {", ""),
        nightly(_FULL, "if (pipeline.filled == 8 && count == 0) {", "beyond the window"),
        nightly(_FULL, "if (pipeline.filled == 8 && event->sample != 7) {", ""),
        nightly("events += run(event);", "events += run(event); if (count == 1) events += run(event);", ""),
        nightly("events += run(event);", "if (pipeline.taken != 14) events += run(event);", ""),
        nightly("events += run(event);", "if ((uint32_t)pipeline.taken != 0) events += run(event);", ""),
        nightly("events += run(event);", "if (pipeline.scores[0][0] < 9.0f) events += run(event);", ""),
        # Samples change after they were copied.
        ("events += run(event);", "SAMPLES[3] = 0; events += run(event);", _NOT_THE_SIGNAL),
        (
            "pipeline.filled += part;",
            "SAMPLES[18] = 1; pipeline.filled += part;",
            _NOT_THE_SIGNAL,
        ),
        nightly("pipeline.filled += part;", "if (part > 1) SAMPLES[2] = 1; pipeline.filled += part;", ""),
        nightly(
            "(void)memcpy(SAMPLES + (3",
            "float old = SAMPLES[15]; (void)memcpy(SAMPLES + (3",
            _NOT_THE_SIGNAL,
        ),
        # What a reset or a start leaves.
        nightly(_CLEARED, "(void)memset(&pipeline, 0, 60);", ""),
        nightly(_CLEARED, f"const bool aside = pipeline.aside; {_CLEARED} pipeline.aside = aside;", ""),
        (
            _CLEARED,
            f"const uint64_t taken = pipeline.taken; {_CLEARED} pipeline.taken = taken;",
            "count the samples",
        ),
        nightly("    if (!pipeline.begun) {", "    if (0) {", ""),
        nightly("pipeline.filled = 0;\n", "pipeline.filled = 1;\n", ""),
        # It writes elsewhere, or reads beyond the application's samples.
        nightly(_REST, "count -= part; *(volatile float *)samples = 0;", "a store to"),
        nightly(_REST, "count -= part; noise += *(volatile const float *)samples;", "a load from"),
        nightly("event->label = label;", "event->label = label; event[1].label = 0;", "a store to"),
    ],
)
def test_a_wrong_push(old: str, new: str, reason: str, decided: Path, tmp_path: Path) -> None:
    """Each is right for some signals, or in some calls."""
    _refused(decided, tmp_path, old, new, reason)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        # The window moves by another number of samples.
        nightly("pipeline.samples + 9, 15", "pipeline.samples + 9, 14", _NOT_THE_SIGNAL),
        nightly("pipeline.samples + 9, 15", "pipeline.samples + 10, 15", _NOT_THE_SIGNAL),
        # The signal's time is another.
        (
            _COUNTED,
            "pipeline.taken = (uint32_t)(pipeline.taken + part);",
            "number of samples since the start",
        ),
        nightly(_COUNTED, "pipeline.taken += (part == 2) ? 1 : part;", ""),
        ("event->sample = pipeline.taken;", "event->sample = pipeline.taken + 1;", "names another sample"),
        nightly(
            "event->sample = pipeline.taken;", "event->sample = (uint32_t)pipeline.taken;", "another sample"
        ),
        nightly("    return events;", "    return events > 1 ? 1 : events;", "does not return 2"),
        nightly(
            "event->row = moves_output_places.features;", "event->row = pipeline.samples;", "event's row"
        ),
    ],
)
def test_a_wrong_event(old: str, new: str, reason: str, moves: Path, tmp_path: Path) -> None:
    _refused(moves, tmp_path, old, new, reason)


def _refused(library: Path, folder: Path, old: str, new: str, reason: str) -> None:
    shutil.copytree(library / "p", folder / "p")
    source = folder / "p" / "model" / "moves_pipeline.c"
    text = source.read_text()
    assert text.count(old) == 1
    text = text.replace(old, new).replace(
        "void moves_reset", "extern volatile float noise;\nvoid moves_reset", 1
    )
    if "float old" in new:  # what was there before comes back
        text = text.replace("        pipeline.filled += part;", "SAMPLES[15] = old; pipeline.filled += part;")
    source.write_text(text)
    main = folder / "p" / "main.c"
    main.write_text(f"volatile float noise;\n{main.read_text()}")
    found = windows(library / "moves.toml", folder / "p")
    assert found.wrong
    assert reason in found.wrong
    assert lines_of_windows(found) == [f"moves: not checked: {found.wrong}"]


@pytest.mark.nightly
def test_a_library_that_does_not_copy(moves: Path, tmp_path: Path) -> None:
    shutil.copytree(moves / "p", tmp_path / "p")
    main = tmp_path / "p" / "main.c"
    copy = """
void *memcpy(void *to, const void *from, unsigned n);
void *memcpy(void *to, const void *from, unsigned n)
{
    for (unsigned i = 0; i < n; i++) ((volatile char *)to)[i] = ((char *)from)[i - (n == 31 && i == 30)];
    return to;
}
"""
    main.write_text(main.read_text() + copy)
    found = windows(moves / "moves.toml", tmp_path / "p")
    assert found.wrong == "memcpy of 31 bytes does not copy them"


def test_the_command(moves: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(image: Path, model: Path, stream: SampleStream) -> WindowsProof:
        return WindowsProof(stream, 12, {"memcpy": 9}, certificate={"image_sha256": image.name})

    monkeypatch.setattr("crtgen.cli.prove.prove_windows", checked)
    command = ["prove", str(moves / "moves.toml")]
    done = CliRunner().invoke(app, [*command, "--image", "app.elf", "--json"])
    said = json.loads(done.stdout)
    assert done.exit_code == 8
    assert (said["windows"], said["proven"], said["samples_in_a_call"]) == (True, False, 12)
    assert (said["span"], said["hop"], said["certificate"]["image_sha256"]) == (8, 3, "app.elf")
    done = CliRunner().invoke(app, [*command, "--image", "app.elf"])
    assert "moves: windows are checked; features, network and decision are not compared" in done.output
    done = CliRunner().invoke(app, [*command, "--board", "mps2_an386"])
    assert done.exit_code == 2
    assert "give the ELF file of an application with --image" in done.output
