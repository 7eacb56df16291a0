"""Starts a device that runs a model: a server image of its own, or a push into a slot of running firmware."""

from typing import TYPE_CHECKING

from crtgen.api.image import Image, Say, silent
from crtgen.api.slot.transfer import push
from crtgen.boards import find_board
from crtgen.device.run import Site
from crtgen.device.session import Session

if TYPE_CHECKING:  # an image that was built before needs no compiler
    from crtgen.api.compiled import Compiled

__all__ = ["build_server", "start_server"]


def build_server(
    compiled: "Compiled",
    site: Site | None = None,
    *,
    stack: int | None = None,
    profile: bool = False,
    toolchain: str | None = None,
    say: Say = silent,
) -> Image:
    """Build a server with the model, or the model's image for the slot of ``site``."""
    slot = site.slot if site else ""
    generated = compiled.generate("slot" if slot else "server", slot=slot, stack=stack, profile=profile)
    return generated.build(toolchain=toolchain, say=say)


def start_server(
    image: Image, site: Site | None = None, *, counting: bool = True, on_log: Say = silent
) -> Session:
    """Start what ``build_server`` built, or push it: a context manager like ``Image.run``."""
    if site is None or not site.slot:
        return image.run(counting=counting, on_log=on_log, site=site)
    from crtgen.api.slot.make import slot_image

    made = slot_image(image, find_board(image.board))
    return image.run(counting=counting, on_log=on_log, site=site, prepare=lambda client: push(client, made))
