"""Field features of a library: black boxes, counts and slots, for a program with its own main.

The C files are copied into the library, so it does not need the runtime. ``crt_config.h`` has the definitions
with which they and the models are compiled; every framework finds it, even one that cannot give files
compiler options.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from crtgen.base.errors import UsageError
from crtgen.base.resources import runtime_dir
from crtgen.boards import Slots
from crtgen.compiler.codegen.module import Interface
from crtgen.compiler.codegen.render import render
from crtgen.compiler.codegen.slot_image import SlotTensor, interface_digest
from crtgen.firmware.project.baremetal import SlotsView, slots_view
from crtgen.firmware.project.firmware import FirmwareRequest
from crtgen.firmware.project.options import stack_of
from crtgen.firmware.project.protection import protection

__all__ = ["CONFIG_FILE", "FieldExample", "field_example", "field_files", "has_field"]

CONFIG_FILE = "crt_config.h"

# Sources of the runtime, by the part that needs them.
_ALWAYS = ("crt_field.c", "crt_crc32.c")
_RECORD = ("crt_record.c",)
_WATCH = ("crt_drift.c",)
_SLOTS = ("crt_slots.c", "crt_slot.c")
_ZEPHYR_FLASH = "crt_flash_zephyr.c"

# Frameworks whose linker scripts know no RAM that a reset leaves alone.
_WITHOUT_NOINIT = ("arduino", "platformio")


@dataclass(frozen=True, slots=True)
class _Model:
    name: str
    inputs: tuple[Interface, ...]
    outputs: tuple[Interface, ...]
    has_states: bool


@dataclass(frozen=True, slots=True)
class _FlashView:
    name: str
    board: str
    mpu: str
    has_caches: bool
    slots: SlotsView
    second_core: str
    watchdog: None = None


@dataclass(frozen=True, slots=True)
class FieldExample:
    """Names for the example of a library; ``zephyr_flash``: a Zephyr driver writes its flash."""

    name: str
    slots: bool
    zephyr_flash: bool


def field_example(firmware: FirmwareRequest) -> FieldExample | None:
    """Return the view for examples; None for a library without black boxes, counts and slots."""
    slots = firmware.options.slots
    found = FieldExample(firmware.name, slots, slots and _is_zephyr(firmware))
    return found if has_field(firmware) else None


def has_field(firmware: FirmwareRequest) -> bool:
    options = firmware.options
    return firmware.type == "library" and bool(options.record or firmware.watched or options.slots)


def _check_field(firmware: FirmwareRequest) -> None:
    # Raise ``UsageError`` for what a library cannot do in the field.
    where = firmware.name
    if firmware.has_registry:
        hint = "leave --registry out, or generate --type server"
        text = "a library with a registry has neither --record, --watch nor --slots"
        raise UsageError(text, where=where, hint=hint)
    if firmware.objects:
        hint = "leave --target llvm out"
        raise UsageError("object files have neither --record, --watch nor --slots", where=where, hint=hint)
    if firmware.options.slots:
        _check_slots(firmware)


def _check_slots(firmware: FirmwareRequest) -> None:
    if len(firmware.models) != 1:
        hint = "generate one library for each model"
        raise UsageError("slots need a library with one model", where=firmware.name, hint=hint)
    (module,) = firmware.modules
    if module.usage:
        what, hint = (
            "samples",
            "make two libraries: the pipeline without [network], and the network with --slots",
        )
        if firmware.request.feed:
            what, hint = "rows", "leave --slots or --feed out"
        text = f"a slot takes whole inputs, and the program feeds this model with {what}"
        raise UsageError(text, where=firmware.name, hint=hint)


def field_files(firmware: FirmwareRequest) -> dict[str, bytes]:
    if not has_field(firmware):
        return {}
    _check_field(firmware)
    options, source = firmware.options, runtime_dir() / "src"
    wanted = [*_ALWAYS, *(_RECORD if options.record else ()), *(_WATCH if firmware.watched else ())]
    driver = ""
    files: dict[str, str] = {}
    if options.slots:
        wanted += _SLOTS
        driver = _driver(firmware)
        if _is_zephyr(firmware):
            wanted.append(_ZEPHYR_FLASH)
        else:
            files["crt_flash_board.c"] = _flash(firmware)
    view = _view(firmware, driver)
    files[f"{firmware.name}_field.h"] = render("project/common/field.h.j2", **view)
    files[f"{firmware.name}_field.c"] = render("project/common/field.c.j2", **view)
    files[CONFIG_FILE] = render("project/common/crt_config.h.j2", **view)
    return {
        **{name: (source / name).read_bytes() for name in wanted},
        **{n: t.encode() for n, t in files.items()},
    }


def _view(firmware: FirmwareRequest, driver: str) -> Mapping[str, object]:
    info = firmware.models[0]
    slots = firmware.board.slots if firmware.options.slots else None
    stack = stack_of(firmware.board.ram) // 2
    tensors = [tuple(map(SlotTensor.of, interfaces)) for interfaces in (info.inputs, info.outputs)]
    digest = interface_digest(tensors[0], tensors[1], bool(info.state))
    is_lost = firmware.options.framework in _WITHOUT_NOINIT
    return {
        "name": firmware.name,
        "board": firmware.board.name,
        "models": [each.name for each in firmware.models],
        "model": _Model(info.name, info.inputs, info.outputs, bool(info.state)),
        "record": firmware.options.record,
        "watched": bool(firmware.watched),
        "recorded_in_slot": bool(firmware.options.record) and not info.state,
        "section": '".bss"' if is_lost else '".noinit"',
        "slots": slots_view(firmware.board, slots, stack) if slots else None,
        "stack": stack,
        "driver": driver,
        "digest": ", ".join(f"0x{byte:02x}" for byte in digest),
    }


def _is_zephyr(firmware: FirmwareRequest) -> bool:
    return firmware.platform == "zephyr" or firmware.options.framework == "zephyr-module"


def _driver(firmware: FirmwareRequest) -> str:
    # A comment on the board's own driver; empty with Zephyr, which has one.
    if _is_zephyr(firmware):
        return ""
    slots = firmware.board.slots
    assert slots is not None
    return f"The flash of {firmware.board.name}, by the driver {slots.driver} in crt_flash_board.c."


def _flash(firmware: FirmwareRequest) -> str:
    board = firmware.board
    slots = board.slots
    assert isinstance(slots, Slots)
    view = _FlashView(
        name=firmware.name,
        board=board.name,
        mpu=protection(board.core),
        has_caches=board.core.has_caches and board.is_real,
        slots=slots_view(board, slots, 0, "crt_flash_board"),
        second_core=board.second_core if firmware.request.cores == 2 else "",
    )
    return render("project/common/crt_flash_board.c.j2", v=view)
