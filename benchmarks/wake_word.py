"""MLPerf Tiny's streaming wake word as a folder: the pipeline, two recordings, and when the word is said.

    python -m benchmarks.wake_word SOUND FOLDER
    crtgen --folder FOLDER check --lock benchmarks/crtgen.lock.json

holds what is locked of it: SOUND is the folder of reference data for sound. The benchmark's own recording of
20 minutes is not among them: these are of speech in noise, in which the network hears its word once.
"""

import sys
import wave
from pathlib import Path

import numpy as np

__all__ = ["write"]

_PIPELINE = """[pipeline]
name = "marvin"
sensor = { kind = "audio", rate = 16000, type = "int16" }

[features]
preset = "mlperf-sww"

[network]
file = "marvin.tflite"

[decision]
label = 0
above = 0.95
quiet = 1.0
"""

_SETTINGS = """boards = ["mps2_an386", "mps3_an547"]
optimize = "speed"

[[model]]
file = "marvin.toml"
data = "events.csv"
"""

_EVENTS = "file,start,stop\nwav0.wav,0.45,0.95\nwav1.wav,,\n"


def write(sound: Path, folder: Path) -> Path:
    """Write the folder; the description in it."""
    folder.mkdir(parents=True, exist_ok=True)
    network = sound / "networks" / "str_ww_ref_model.tflite"
    (folder / "marvin.tflite").write_bytes(network.read_bytes())
    with np.load(sound / "given" / "mlperf_sww.npz") as arrays:
        for name in ("wav0", "wav1"):
            with wave.open(str(folder / f"{name}.wav"), "wb") as file:
                file.setparams((1, 2, 16000, 0, "NONE", ""))
                file.writeframes(arrays[name].astype("<i2").tobytes())
    (folder / "events.csv").write_text(_EVENTS)
    (folder / "crtgen.toml").write_text(_SETTINGS)
    (folder / "marvin.toml").write_text(_PIPELINE)
    return folder / "marvin.toml"


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
