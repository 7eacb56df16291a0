"""Writes an image into a slot of a running device, over the RPC."""

import time
from dataclasses import dataclass

import numpy as np

from crtgen.api.image import Say, silent
from crtgen.api.slot.delta import Delta
from crtgen.base import endpoints
from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.boards import Board
from crtgen.compiler.codegen.slot_image import SlotImage
from crtgen.device.rpc.client import Client, SlotsState

__all__ = ["Pushed", "push", "reason_of", "slot_names", "slots_of"]

_REASONS = {
    -32: "empty",
    -33: "made by another release of crtgen",
    -34: "does not fit, or is cut short",
    -35: "damaged",
    -36: "not signed by the key of the firmware",
    -37: "needs instructions that the core does not have, or an NPU that the firmware does not use",
    -38: "made for another place",
    -39: "takes too much of the stack",
    -40: "older than the firmware allows",
    -41: "has other inputs or outputs",
}

_CHUNK = 4096
_PAD = 0xFF


@dataclass(frozen=True, slots=True)
class Pushed:
    """Result of a push: slot number, bytes sent, seconds; ``active`` if the slot already runs."""

    slot: int
    sent: int
    seconds: float
    active: bool


def slots_of(client: Client) -> SlotsState:
    """Return the slots of a device. Raises ``UnsupportedError`` for firmware without slots."""
    state = client.slots()
    if state is None:
        hint = "generate it with --slots, and write it to the board"
        raise UnsupportedError("this firmware has no slots", hint=hint)
    return state


def slot_names(board: Board, state: SlotsState) -> tuple[str, ...]:
    """Return the names of a device's slots from the board's file, or their numbers if the file does not name
    them.
    """
    known = {slot.origin: slot.name for slot in board.slots.places} if board.slots else {}
    return tuple(known.get(place.origin, str(number)) for number, place in enumerate(state.places))


def reason_of(status: int) -> str:
    """Say why the model in a slot cannot be used: ``enum crt_slot_error`` of ``crt/slot.h``."""
    return _REASONS.get(status, f"refused, {status}")


def push(client: Client, image: SlotImage | Delta, *, commit: bool = True, say: Say = silent) -> Pushed:
    """Write an image into the slot that it is linked for, and commit it.

    A delta is applied on the device to the old image in another slot. With ``commit`` the model runs from the
    next start on; in a RAM slot, immediately. Raises ``UsageError`` for an image that is linked for another
    slot, and ``RemoteError`` if the device refuses it; its running model is then unchanged.
    """
    began, state = time.monotonic(), slots_of(client)
    slot = _slot_at(state, image.origin)
    size = image.end if isinstance(image, Delta) else len(image.data)
    if size > state.places[slot].size:
        raise UsageError(
            f"the image has {size:,} bytes, the slot {state.places[slot].size:,}",
            hint="--optimize size makes it smaller; docs/slots.md says how to make slots larger",
        )
    base = _slot_at(state, image.base_origin) if isinstance(image, Delta) else slot
    parts = image.parts() if isinstance(image, Delta) else ((0, image.data),)
    say("erasing")
    client.slot_call(endpoints.SLOT_BEGIN, slot)
    sent = 0
    for offset, part in parts:
        say(f"writing {offset:,}")
        if isinstance(part, bytes):
            _write(client, slot, offset, part, state)
            sent += len(part)
        else:
            client.slot_call(endpoints.SLOT_COPY, slot, offset, base, offset, part)
    if commit:
        client.slot_call(endpoints.SLOT_COMMIT, slot)
    active = slots_of(client).active == slot
    return Pushed(slot, sent, time.monotonic() - began, active)


def _slot_at(state: SlotsState, origin: int) -> int:
    for number, place in enumerate(state.places):
        if place.origin == origin:
            return number
    known = ", ".join(f"{place.origin:#010x}" for place in state.places)
    raise UsageError(f"the image is for a slot at {origin:#010x}", hint=f"the device has slots at {known}")


def _write(client: Client, slot: int, offset: int, data: bytes, state: SlotsState) -> None:
    # Through a block of the device's pool; bytes behind the last ones are as erased.
    padded = data + bytes([_PAD]) * (-len(data) % state.write_size)
    memory = client.memory()
    room = min(_CHUNK, memory.free // 2 if memory else _CHUNK)
    chunk = max(room // state.write_size, 1) * state.write_size
    for at in range(0, len(padded), chunk):
        part = np.frombuffer(padded[at : at + chunk], np.uint8)
        with client.allocate(part.shape, np.uint8) as place:
            place.write(part)
            client.slot_call(endpoints.SLOT_WRITE, slot, offset + at, place)
