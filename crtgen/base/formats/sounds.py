"""Sound in WAV, FLAC or Ogg, recognised by content.

libsndfile recognises two dozen formats by their content; only these three are accepted. Headers may claim up
to 2^36 frames, and NumPy would allocate them, so the budget is asked first.
"""

import wave
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.base.formats.foreign import foreign

__all__ = ["read_sound", "read_wav"]

_FORMATS = ("WAV", "WAVEX", "FLAC", "OGG")
_STARTS = (b"RIFF", b"fLaC", b"OggS")
_INSTALL = "pip install 'crtgen[media]'"
# Samples that are read at a time, so that memory follows what there is and not what the header claims.
_AT_ONCE = 1 << 22

# Bytes for a frame mixed to one channel, its copy, and the runs that are made of it.
_PER_FRAME = 12


def read_sound(path: Path) -> tuple[npt.NDArray[np.float32], int]:
    """Read samples from -1 to 1, mixed to one channel, and the rate in Hz.

    Raises ``UsageError``, or ``UnsupportedError`` for a sound that takes too much memory.
    """
    try:
        import soundfile  # type: ignore[import-untyped]
    except ImportError as error:
        raise UsageError("sound needs soundfile", where=str(path), hint=_INSTALL) from error
    with foreign(path, "the sound", "export it again, as WAV for example") as spent:
        data = files.read(path, "the sound")
        if not data.startswith(_STARTS):
            raise ValueError("the file is not a WAV, FLAC or Ogg")
        with spent.enforced(), soundfile.SoundFile(BytesIO(data)) as sound:
            if sound.format not in _FORMATS:
                raise ValueError(f"the file has the format {sound.format}")
            at_once = max(1, _AT_ONCE // sound.channels)
            parts, most = [np.zeros(0, np.float32)], int(sound.frames)
            while most > 0:
                block = sound.read(min(at_once, most), dtype="float32", always_2d=True)
                if not len(block):
                    break
                most -= len(block)
                spent.take(_PER_FRAME * len(block), "samples")
                parts.append(block.mean(axis=1, dtype=np.float32))
            return np.concatenate(parts), int(sound.samplerate)


def read_wav(path: Path, channels: int, bits: int, rate: int) -> bytes:
    """Read the samples of a WAV file with integer samples, unconverted. Raises ``UsageError`` for any other
    form.
    """
    hint = f"export it as WAV, {bits} bits, {'one channel' if channels == 1 else f'{channels} channels'}"
    with foreign(path, "the sound", hint):
        data = files.read(path, "the sound")
        with wave.open(BytesIO(data)) as sound:
            form = (sound.getnchannels(), 8 * sound.getsampwidth(), sound.getframerate())
            frames: bytes = sound.readframes(sound.getnframes())
    if form != (channels, bits, rate):
        what = f"it has {form[0]} channels of {form[1]} bits at {form[2]} Hz"
        hint = f"convert it to one channel of {bits} bits at {rate} Hz: another rate gives other features"
        raise UsageError(what, where=str(path), hint=hint)
    width = channels * bits // 8
    return frames[: len(frames) // width * width]
