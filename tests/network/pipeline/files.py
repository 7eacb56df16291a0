"""Descriptions of pipelines for tests, and the recordings that go with them."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import crtgen
from crtgen.network.pipeline.stream import times_of
from tests.support import BRIEF, CHECKED, compile_each, models_dir, require_tool

Arrays = dict[str, npt.NDArray[Any]]


def sound_dir() -> Path:
    """The folder of reference data for sound."""
    return models_dir().parent / "sound"


def given(name: str) -> Arrays:
    """The arrays of a set of reference data."""
    with np.load(sound_dir() / "given" / f"{name}.npz") as arrays:
        return dict(arrays)


def describe(folder: Path, preset: str, network: Path | str, decision: str = "", name: str = "heard") -> Path:
    """A file that describes a pipeline."""
    file = folder / f"{name}.toml"
    file.write_text(
        f"""[pipeline]
name = "{name}"
sensor = {{ kind = "audio", rate = 16000, type = "int16" }}
[features]
preset = "{preset}"
[network]
file = "{network}"
{decision}"""
    )
    return file


def marvin(folder: Path, decision: str = "label = 0\nabove = 0.95\nquiet = 1.0") -> Path:
    """The streaming wake word of MLPerf Tiny."""
    network = sound_dir() / "networks" / "str_ww_ref_model.tflite"
    return describe(folder, "mlperf-sww", network, f"[decision]\n{decision}\n", "marvin")


def yes_or_no(folder: Path) -> Path:
    """The micro speech example."""
    decision = (
        '[decision]\nlabels = ["silence", "unknown", "yes", "no"]\nlabel = ["yes", "no"]\naverage = 2\n'
    )
    network = sound_dir() / "networks" / "micro_speech_quantized.tflite"
    return describe(folder, "tflm-micro-speech", network, decision, "speech")


def program(file: Path, folder: Path, main: str) -> Path:
    """The library of a pipeline with a program around it, compiled with sanitizers.

    Its header says when the first run is, where it has samples.
    """
    model = crtgen.load(file)
    assert isinstance(model, crtgen.Model)
    assert model.pipeline is not None
    model.compile("host").generate("library").extract(folder / "library")
    first, number = f"{model.name.upper()}_FIRST", next(times_of(model.pipeline))
    main += f'#ifdef {first}\n_Static_assert({first} == {number}, "the first run");\n#endif\n'
    return built(folder, main.replace("NAME", model.name))


def built(folder: Path, main: str, *options: str) -> Path:
    """The program ``main`` with the library in ``folder``, with further options of gcc."""
    (folder / "main.c").write_text(main)
    sources = [*(folder / "library" / "model").glob("*.c"), folder / "main.c"]
    includes = [f"-I{folder / 'library' / part}" for part in ("model", "runtime/include")]
    command = [require_tool("gcc"), *CHECKED, *BRIEF, *options, *includes]
    return compile_each(command, sources, folder / "program")
