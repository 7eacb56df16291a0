"""Writes sounds.h: what the microphone of the product hears, files of a second at 16 kHz.

usage: python sounds.py FILE LABEL WAV...

LABEL is that of the first file, which is the known one.
"""

import sys
import wave
from pathlib import Path

import numpy as np

COUNT = 16_000


def read(file: Path) -> "np.ndarray[tuple[int], np.dtype[np.int16]]":
    """Return the samples of a mono file of 16 bits."""
    with wave.open(str(file)) as sound:
        kind = sound.getnchannels(), sound.getsampwidth(), sound.getframerate(), sound.getnframes()
        if kind != (1, 2, COUNT, COUNT):
            raise SystemExit(f"{file}: expected a second of mono sound at 16 kHz in 16 bits")
        return np.frombuffer(sound.readframes(COUNT), "<i2")


def main(file: Path, label: int, wavs: list[Path]) -> None:
    """The known sound comes last, as the firmware expects it."""
    sounds = [read(wav) for wav in (*wavs, wavs[0])]
    lines = "\n".join(f"    {{{', '.join(map(str, sound))}}}," for sound in sounds)
    file.write_text(
        f"#define SOUNDS {len(wavs)}u\n#define SOUND_SAMPLES {COUNT}u\n#define KNOWN_WORD {label}\n"
        f"static const int16_t sounds[{len(sounds)}][{COUNT}] = {{\n{lines}\n}};\n"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), [Path(word) for word in sys.argv[3:]])
