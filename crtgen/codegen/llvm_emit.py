"""LLVM modules in memory: read, verified, optimised, and written as object files."""

from typing import Any

import llvmlite.binding as llvm

from crtgen.boards.core import Core
from crtgen.codegen.llvm_target import machine
from crtgen.errors import BuildError

__all__ = ["emit_object", "optimise", "parse"]

_SPEED = {"size": 2, "balanced": 2, "speed": 3}


def parse(text: str) -> Any:
    """The verified module of IR in text; ``BuildError`` with LLVM's reason if it is none."""
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise BuildError(f"LLVM refuses the module: {error}") from error
    return module


def optimise(module: Any, core: Core, optimize: str) -> None:
    """Run LLVM's pipeline over the module, in place."""
    builder = llvm.create_pass_builder(
        machine(core, optimize), llvm.create_pipeline_tuning_options(_SPEED[optimize])
    )
    passes = builder.getModulePassManager()
    passes.run(module, builder)


def emit_object(module: Any, core: Core, optimize: str = "balanced") -> bytes:
    """The module as an object file for the core."""
    return bytes(machine(core, optimize).emit_object(module))
