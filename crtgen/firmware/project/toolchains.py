"""Toolchains that can build a project."""

from crtgen.boards import Board

__all__ = ["BARE_METAL", "HOST", "toolchains_of"]

BARE_METAL = ("gcc", "zig", "picolibc")
HOST = ("cc", "zig")


def toolchains_of(board: Board, platform: str) -> tuple[str, ...]:
    """Return the toolchains that can build a project, the default one first."""
    if platform == "zephyr":
        return ("zephyr",)
    return HOST if board.is_host else BARE_METAL
