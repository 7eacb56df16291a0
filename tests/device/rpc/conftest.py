"""A clock that does not depend on how busy the machine is."""

from collections.abc import Iterator

import pytest


class Clock:
    """It goes on by five milliseconds whenever it is looked at, and at no other time."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic(self) -> float:
        """Seconds."""
        self._looks += 1
        return self._looks / 200


@pytest.fixture(scope="module")
def clock() -> Iterator[None]:
    """The client's clock, for devices of this process, which answer at once or never."""
    made = Clock()
    with pytest.MonkeyPatch.context() as patch:
        for module in ("exchange", "link"):
            patch.setattr(f"crtgen.device.rpc.{module}.time", made)
        yield
