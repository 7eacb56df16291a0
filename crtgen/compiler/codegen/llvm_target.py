"""Cores in LLVM's terms, and the target machines that llvmlite creates for them.

llvmlite is optional: a module that imports this file must first call ``llvm.require_llvm``.
"""

from functools import cache
from typing import Any

import llvmlite.binding as llvm

from crtgen.boards.core import Core

__all__ = ["machine", "triple"]

# Features of LLVM's core that an implementation may lack.
_OFF = ("dsp", "fp-armv8d16sp", "fp64", "vfp4d16sp", "mve", "fpregs")


def triple(core: Core) -> str:
    """Return the target triple, such as ``thumbv7em-unknown-none-gnueabihf``; for the host its own.

    All four parts are needed: llvmlite does not normalise triples, and with three parts LLVM would miss the
    float ABI. With ``gnu`` it calls ``memcpy`` by that name, which every C library has; Zephyr's has no
    ``__aeabi_memcpy``.
    """
    if core.arch == "host":
        return str(llvm.get_process_triple())
    name = core.arch.replace("armv", "thumbv").replace("-m", "m")
    return f"{name}-unknown-none-{'gnueabi' if core.fpu == 'none' else 'gnueabihf'}"


def machine(core: Core) -> Any:
    _initialize()
    is_host = core.arch == "host"
    target = llvm.Target.from_triple(triple(core))
    return target.create_target_machine(
        cpu="" if is_host else core.family,
        features=_features(core),
        opt=2,
        reloc="pic" if is_host else "static",
        codemodel="default",
    )


def _features(core: Core) -> str:
    # Disabled features, among them unaligned access.
    if core.arch == "host":
        return ""
    off = [name for name in _OFF if not _has(core, name)]
    return ",".join([*(f"-{name}" for name in off), "-strict-align" if core.unaligned else "+strict-align"])


def _has(core: Core, feature: str) -> bool:
    if feature in ("dsp", "mve"):
        return core.dsp if feature == "dsp" else core.mve
    return core.fpu != "none" and (feature != "fp64" or core.fpu == "dp")


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
