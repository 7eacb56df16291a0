"""A line that damages what passes, as a serial cable does."""

import random
import time

from crtgen.device.rpc.stream import Stream

__all__ = ["KINDS", "Noisy"]

KINDS = ("flip", "drop", "double")


class Noisy:
    """Around a stream: flips a bit of a byte, drops it or doubles it, with probability ``rate``, both ways.

    What a test sets as ``lose`` swallows so many packets of the device.
    """

    flow_controlled = False

    def __init__(self, inner: Stream, kind: str = "flip", rate: float = 0.0, seed: int = 7) -> None:
        self._inner = inner
        self._kind = kind
        self._random = random.Random(seed)
        self.rate = rate
        self.lose = 0
        self.damaged = 0

    def read(self, timeout: float) -> bytes:
        end = time.monotonic() + timeout
        while True:
            data = self._changed(self._inner.read(max(0.0, end - time.monotonic())))
            if self.lose:
                self.lose -= 1
            elif data:
                return data

    def write(self, data: bytes) -> None:
        self._inner.write(self._changed(data))

    def close(self) -> None:
        self._inner.close()

    def _changed(self, data: bytes) -> bytes:
        changed = bytearray()
        for byte in data:
            if self._random.random() >= self.rate:
                changed.append(byte)
                continue
            self.damaged += 1
            if self._kind == "flip":
                changed.append(byte ^ 1 << self._random.randrange(8))
            elif self._kind == "double":
                changed += bytes((byte, byte))
        return bytes(changed)
