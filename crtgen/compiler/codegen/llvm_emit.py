"""LLVM modules in memory: read, verified, optimised, and written as object files."""

from typing import Any

import llvmlite.binding as llvm

from crtgen.base.errors import BuildError
from crtgen.boards.core import Core
from crtgen.compiler.codegen.llvm_target import machine

__all__ = ["emit_object", "optimise", "parse"]

_LEVEL = 2  # of speed: 3 gains under 2 % and takes up to 24 % more flash


def parse(text: str) -> Any:
    """Parse and verify IR. Raises ``BuildError`` with LLVM's reason if it is invalid."""
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise BuildError(f"LLVM refuses the module: {error}") from error
    return module


def optimise(module: Any, core: Core) -> None:
    builder = llvm.create_pass_builder(machine(core), llvm.create_pipeline_tuning_options(_LEVEL))
    passes = builder.getModulePassManager()
    passes.run(module, builder)


def emit_object(module: Any, core: Core) -> bytes:
    return bytes(machine(core).emit_object(module))
