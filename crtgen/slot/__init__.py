"""Models in slots: images of their own, which are exchanged without the firmware."""

from typing import TYPE_CHECKING

from crtgen.lazy import on_demand

if TYPE_CHECKING:
    from crtgen.slot.delta import Delta
    from crtgen.slot.make import interface_file, make_slot, slot_image
    from crtgen.slot.serve import build_server, start_server
    from crtgen.slot.signature import sign
    from crtgen.slot.transfer import Pushed, push

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
