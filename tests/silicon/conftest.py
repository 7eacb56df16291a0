"""Images for simulated chips, each built once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.firmware.project.building import build_toy
from tests.support import require_tool


@pytest.fixture(scope="session")
def toy_image(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The server image of a toy network for the board of a name."""
    require_tool("arm-none-eabi-gcc")
    built: dict[str, Path] = {}

    def image(board: str) -> Path:
        if board not in built:
            built[board] = build_toy(board, "server", tmp_path_factory.mktemp(board))
        return built[board]

    return image
