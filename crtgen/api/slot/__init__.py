"""Models in slots: separate images that are replaced without changing the firmware."""

from typing import TYPE_CHECKING

from crtgen.base.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.api.slot.delta import Delta
    from crtgen.api.slot.make import interface_file, make_slot, slot_image
    from crtgen.api.slot.serve import build_server, start_server
    from crtgen.api.slot.signature import sign
    from crtgen.api.slot.transfer import Pushed, push

__all__ = [
    "Delta",
    "Pushed",
    "build_server",
    "interface_file",
    "make_slot",
    "push",
    "sign",
    "slot_image",
    "start_server",
]

__getattr__ = on_demand(__name__, __file__)
