"""The generated C of a pipeline against its twin in Python, however samples come in."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import crtgen
from crtgen.base.errors import UsageError
from crtgen.cli.app import app
from crtgen.network.features import Features
from crtgen.network.pipeline import Event, events_of, runs_of
from tests.network.pipeline.files import built, given, marvin, program, yes_or_no
from tests.support import models_dir, nightly

_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "NAME_pipeline.h"
int main(int count, char **words)
{
    static int16_t samples[300000];
    if (count != 3) {
        return 1;
    }
    FILE *file = fopen(words[1], "rb");
    const uint32_t length = (uint32_t)fread(samples, 2, 300000, file);
    const uint32_t most = (uint32_t)atoi(words[2]);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t at = 0; at < length; at += most) {
            struct NAME_event event;
            const uint32_t part = (length - at < most) ? length - at : most;
            if (NAME_push(samples + at, part, &event) > 0) {
                printf("%llu %u %d\\n", (unsigned long long)event.sample, event.label, event.score);
            }
        }
        NAME_reset();
    }
    return fclose(file);
}
"""


def _wanted(file: Path, samples: np.ndarray[tuple[int, ...], np.dtype[np.int16]]) -> list[Event]:
    model = crtgen.load(file)
    assert isinstance(model, crtgen.Model)
    assert model.pipeline is not None
    runs = [[run] for run in runs_of(model.pipeline, samples)]
    return events_of(model.pipeline, [y[0] for y in model.graph.run(runs)])


_DECISIONS = [
    "label = 0\nabove = 0.95\nquiet = 1.0",
    "above = 0.6\naverage = 3\npatience = 2\nignore = 1.5",
]


@pytest.mark.cc
@pytest.mark.parametrize("decision", [_DECISIONS[0], nightly(_DECISIONS[1])])
def test_events_of_the_wake_word(tmp_path: Path, decision: str) -> None:
    reference = given("mlperf_sww")
    samples = np.concatenate([reference["wav0"], reference["wav1"]])
    samples.tofile(tmp_path / "samples")
    file = marvin(tmp_path, decision)
    made = program(file, tmp_path, _MAIN)
    wanted = [f"{e.sample} {e.label} {e.score}" for e in _wanted(file, samples)]
    assert wanted
    for most in ("1", "1000"):
        done = subprocess.run(
            [made, tmp_path / "samples", most], check=True, timeout=60, capture_output=True, text=True
        )
        assert done.stdout.splitlines() == wanted * 2, most


@pytest.mark.parametrize(("board", "arena"), [("mps2_an386", 8200), ("rpi_pico", 6146)])
def test_ram_of_the_wake_word(tmp_path: Path, board: str, arena: int) -> None:
    """The samples of a run are in the arena; those of the next one, too, are kept over a run."""
    made = crtgen.load(marvin(tmp_path)).compile(board).generate("library")
    assert (made.plans[0].arena, made.plans[0].state_bytes) == (arena, 3536)
    text = made.project.files["model/marvin_pipeline.c"]
    assert "    int16_t samples[513]; " in (text.decode() if isinstance(text, bytes) else text)


@pytest.mark.cc
def test_another_model_runs_in_the_arena_between_pushes(tmp_path: Path) -> None:
    samples = np.concatenate([given("mlperf_sww")["wav0"], given("mlperf_sww")["wav1"]])
    samples.tofile(tmp_path / "samples")
    file, library = marvin(tmp_path), tmp_path / "library"
    models = [str(file), str(models_dir() / "hello_world_int8.tflite"), str(library)]
    command = ["generate", *models, "--board", "host", "--type", "library"]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    (shared,) = re.findall(r"CRT_SHARED_ARENA=\d+", (library / "CMakeLists.txt").read_text())
    clear = f"(void)memset(crt_shared_arena, 7, {shared.partition('=')[2]});"
    main = _MAIN.replace("struct NAME_event event;", f"struct NAME_event event; {clear}")
    declared = f"#include <stdint.h>\n#include <string.h>\nextern uint8_t crt_shared_arena[];\n{main}"
    made = built(tmp_path, declared.replace("NAME", "marvin"), f"-D{shared}")
    done = subprocess.run(
        [made, tmp_path / "samples", "300"], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [f"{e.sample} {e.label} {e.score}" for e in _wanted(file, samples)] * 2


@pytest.mark.cc
def test_events_of_micro_speech(tmp_path: Path) -> None:
    reference = given("e2e_micro_speech")
    samples = np.concatenate([reference["wav0"], reference["wav1"]])
    samples.tofile(tmp_path / "samples")
    file = yes_or_no(tmp_path)
    made = program(file, tmp_path, _MAIN)
    command = [str(made), str(tmp_path / "samples"), "320"]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    wanted = [f"{e.sample} {e.label} {e.score}" for e in _wanted(file, samples)]
    assert {line.split()[1] for line in wanted} >= {"2"}
    assert done.stdout.splitlines() == wanted * 2


_WINDOWS = """
#include <stdio.h>
#include "moves_pipeline.h"
int main(int count, char **words)
{
    static float samples[3000];
    FILE *file = fopen(words[count - 1], "rb");
    const uint32_t length = (uint32_t)fread(samples, 12, 1000, file);
    for (uint32_t at = 0; at < length; at += 7) {
        struct moves_event event;
        if (moves_push(samples + (3 * at), (length - at < 7) ? length - at : 7, &event) > 0) {
            fwrite(event.row, 4, MOVES_OUTPUT_FEATURES_ELEMENTS, stdout);
        }
    }
    return fclose(file);
}
"""


def test_labels_are_macros_of_their_own(tmp_path: Path) -> None:
    file = yes_or_no(tmp_path)
    file.write_text(file.read_text().replace('"silence", "unknown"', '"a b", "a-b \\"*/"'))
    header = crtgen.load(file).compile("host").generate("library").project.files["model/speech_pipeline.h"]
    text = header.decode() if isinstance(header, bytes) else header
    lines = [line for line in text.splitlines() if line.startswith("#define SPEECH_LABEL_")]
    assert len({line.split()[1] for line in lines}) == 4
    file.write_text(file.read_text().replace('"yes", "no"]', '"no", "no"]'))
    with pytest.raises(UsageError, match="two are called 'no'"):
        crtgen.load(file)


@pytest.mark.cc
@pytest.mark.parametrize("hop", [20, 64])
def test_windows_of_movements(tmp_path: Path, hop: int) -> None:
    """A row of features holds until the next push, also where samples of the next run have come in."""
    file = tmp_path / "moves.toml"
    sensor = '[pipeline]\nname = "moves"\nsensor = { kind = "imu", axes = 3, rate = 100 }\n'
    file.write_text(f'{sensor}[features]\npreset = "edge-impulse-spectral"\nframe = 64\nhop = {hop}\n')
    samples = given("ei_spectral_v4")["x_f32"][0]
    samples.tofile(tmp_path / "samples")
    binary = program(file, tmp_path, _WINDOWS)
    done = subprocess.run([binary, tmp_path / "samples"], check=True, timeout=60, capture_output=True)
    made = np.frombuffer(done.stdout, np.float32).reshape(-1, 39)
    features = Features("edge-impulse-spectral", frame=64)
    expected = features.transform(np.stack([samples[at : at + 64] for at in range(0, 200 - 64 + 1, hop)]))
    assert made.shape == expected.shape
    assert float(np.abs(made - expected.astype(np.float32)).max()) < 1e-5 * float(np.ptp(expected))
