"""The example of a library project."""

from dataclasses import dataclass

from crtgen.compiler.codegen.module import CModule, Interface
from crtgen.compiler.codegen.render import render
from crtgen.firmware.project.field import FieldExample, field_example
from crtgen.firmware.project.firmware import FirmwareRequest

__all__ = ["example_files"]


@dataclass(frozen=True, slots=True)
class _PortView:
    name: str
    member: str
    macro: str
    type: str


@dataclass(frozen=True, slots=True)
class _LibraryModelView:
    name: str
    run: str
    inputs: tuple[_PortView, ...]
    outputs: tuple[_PortView, ...]
    usage: str


@dataclass(frozen=True, slots=True)
class _ExampleView:
    models: tuple[_LibraryModelView, ...]
    field: FieldExample | None


def example_files(firmware: FirmwareRequest) -> dict[str, bytes]:
    """Return ``example/main.c``; nothing if a model has no typed interface in C."""
    if firmware.type != "library" or not all(map(_is_typed, firmware.modules)):
        return {}
    view = _ExampleView(
        tuple(_model(module, firmware.options.slots) for module in firmware.modules), field_example(firmware)
    )
    return {"example/main.c": render("project/common/example.c.j2", v=view).encode()}


def _is_typed(module: CModule) -> bool:
    name = module.info.name
    return f"{name}_run(" in module.files.get(f"{name}.h", "")


def _model(module: CModule, slots: bool) -> _LibraryModelView:
    info = module.info
    return _LibraryModelView(
        info.name,
        f"{info.name}_run{'_newest' if slots else ''}",
        tuple(_port(info.name, "input", i) for i in info.inputs),
        tuple(_port(info.name, "output", o) for o in info.outputs),
        module.usage,
    )


def _port(model: str, side: str, interface: Interface) -> _PortView:
    macro = f"{model}_{side}_{interface.c_name}".upper()
    return _PortView(f"{side}_{interface.c_name}", interface.c_name, macro, interface.dtype.c_name)
