"""Builds a compiled model's image for a slot."""

from crtgen.api.compiled import Compiled
from crtgen.api.image import Image, Say, silent
from crtgen.base.errors import BuildError, UnsupportedError
from crtgen.boards import Board
from crtgen.compiler.codegen import interface_header
from crtgen.compiler.codegen.slot_image import SlotImage, SlotTensor, core_bits, header_bytes
from crtgen.firmware.builder import binary, read_content

__all__ = ["interface_file", "make_slot", "slot_image"]

# Bytes of the stack, more than twice what crt_layer_done and the reading of the timer take.
_PROFILER = 256

# Bytes of the stack, more than twice what the firmware's driver of an NPU takes, or its mailbox in QEMU.
_DRIVER = 512


def make_slot(
    compiled: Compiled, slot: str, *, version: int = 1, toolchain: str | None = None, say: Say = silent
) -> SlotImage:
    """Build the only model of ``compiled`` for a slot of its board.

    ``version`` is the version of the model: firmware may refuse older ones. Raises ``UsageError`` for a board
    without that slot, and ``BuildError`` if the model does not fit.
    """
    image = compiled.generate("slot", slot=slot).build(toolchain=toolchain, say=say)
    return slot_image(image, compiled.board, version)


def slot_image(image: Image, board: Board, version: int = 1) -> SlotImage:
    manifest, slots = image.built.manifest, board.slots
    (info,) = manifest.models
    assert slots is not None
    place, content = slots.find(manifest.options.slot), read_content(image.path)
    inputs, outputs = (tuple(map(SlotTensor.of, interfaces)) for interfaces in (info.inputs, info.outputs))
    start = place.origin + header_bytes(inputs, outputs)
    if content.origin != start:
        raise BuildError(f"the code begins at {content.origin:#x}, not at {start:#x}", where=str(image.path))
    return SlotImage(
        name=info.name,
        version=version,
        origin=place.origin,
        work=slots.work,
        work_size=-(-image.size.sizes.ram // 4) * 4,
        stack=_stack(image),
        core=core_bits(board.core, npu=_has_npu(image)),
        entry=start,
        stateful=info.state > 0,
        inputs=inputs,
        outputs=outputs,
        code=binary(content),
    )


def _has_npu(image: Image) -> bool:
    return any(symbol.name == "crt_npu_run" for symbol in image.size.sizes.symbols)


def _stack(image: Image) -> int:
    # The bytes of the stack that a run takes at most. Built with ``CRT_PROFILE`` it calls the firmware after
    # each layer, which takes up to ``_PROFILER``.
    stack, profile = image.size.stack, image.built.manifest.options.profile
    if stack is None:
        raise UnsupportedError("the stack use of a run is unknown", where=image.built.manifest.name)
    left = set(stack.unresolved) - ({"crt_layer_done"} if profile else set())
    if stack.recursion or stack.unknown or left:
        unknown = ", ".join((*stack.unknown, *sorted(left))[:3]) or "recursion"
        where = image.built.manifest.name
        raise UnsupportedError(f"the stack use of a run is unknown: {unknown}", where=where)
    return stack.worst + (_PROFILER if profile else 0) + (_DRIVER if _has_npu(image) else 0)


def interface_file(compiled: Compiled, image: SlotImage) -> str:
    """Write a header for firmware that runs any version of the model with the same interface."""
    if not compiled.plans:
        raise UnsupportedError(
            "an interface header is written from a model, and code that was imported has none",
            where=image.name,
        )
    return interface_header(compiled.plans[0], image.name, image.interface)
