"""What projects can be built with."""

from crtgen.boards import Board

__all__ = ["BARE_METAL", "HOST", "toolchains_of"]

BARE_METAL = ("gcc", "zig")
HOST = ("cc", "zig")


def toolchains_of(board: Board, platform: str) -> tuple[str, ...]:
    """What a project can be built with; the first is taken unless another is named."""
    if platform == "zephyr":
        return ("zephyr",)
    return HOST if board.is_host else BARE_METAL
