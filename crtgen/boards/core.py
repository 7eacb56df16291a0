"""Processor cores, as far as code generation has to know them."""

from dataclasses import dataclass

from crtgen.errors import UsageError

__all__ = ["ALIASES", "CORES", "HOST", "Core", "find_core"]


@dataclass(frozen=True, slots=True)
class Core:
    """A core: what it can execute and how compilers call it.

    ``arch`` is the architecture (``armv6-m``, ``armv8-m.base``, ``armv7-m``, ``armv7e-m``, ``armv8-m.main``,
    ``armv8.1-m.main``, ``host``); ``fpu`` is ``none``, ``sp`` or ``dp``; ``dsp`` means the DSP extension
    (SMLAD, SXTB16, SSAT ...), ``mve`` means Helium with integers and floats. ``name`` is GCC's, with what
    this implementation of the core lacks.
    """

    name: str
    arch: str
    dsp: bool = False
    mve: bool = False
    fpu: str = "none"
    unaligned: bool = True

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def fast_fma(self) -> bool:
        """Whether a fused multiplication and addition is as fast as either; on M4 it takes three cycles."""
        return self.name.partition("+")[0] in ("cortex-m7", "cortex-m55", "cortex-m85")

    @property
    def vfp(self) -> bool:
        """Whether float32 is computed one number at a time: an FPU, and no Helium."""
        return self.fpu != "none" and self.arch in ("armv7e-m", "armv8-m.main") and not self.mve

    @property
    def base(self) -> bool:
        """Whether it has neither the DSP extension nor Helium."""
        return self.arch != "host" and not self.dsp

    @property
    def narrow(self) -> bool:
        """Whether hardly any of its instructions have more than 16 bits."""
        return self.arch in ("armv6-m", "armv8-m.base")

    @property
    def has_caches(self) -> bool:
        """Whether it may have caches of its own; registers say which."""
        return self.name.partition("+")[0] in ("cortex-m7", "cortex-m55", "cortex-m85")

    @property
    def has_vtor(self) -> bool:
        """Whether the vector table can be elsewhere than at address 0."""
        return self.name != "cortex-m0"

    @property
    def fpv5(self) -> bool:
        """Whether the FPU has VMAXNM and VMINNM; that of the M4 is older."""
        return self.fpu != "none" and self.name != "cortex-m4"

    @property
    def gcc_flags(self) -> tuple[str, ...]:
        """``-mcpu`` and the floating-point options of arm-none-eabi-gcc.

        Before its release 13 it has no M85, which executes what the M55 does.
        """
        if self.arch == "host":
            return ()
        abi = ("-mfloat-abi=soft",) if self.fpu == "none" else ("-mfloat-abi=hard", "-mfpu=auto")
        name = "cortex-m55" if self.name == "cortex-m85" else self.name
        return (f"-mcpu={name}", "-mthumb", *abi)

    @property
    def zig_flags(self) -> tuple[str, ...]:
        """Target and core as Zig names them; its cores have nothing optional unless it is added."""
        if self.arch == "host":
            return ()
        abi = "eabi" if self.fpu == "none" else "eabihf"
        features = [_ZIG_FPU[self.arch.removesuffix(".main"), self.fpu]] if self.fpu != "none" else []
        features += [name for name, has in (("dsp", self.dsp), ("mve_fp", self.mve)) if has]
        base = self.name.partition("+")[0].replace("-", "_")
        return ("-target", f"thumb-freestanding-{abi}", f"-mcpu={'+'.join((base, *features))}")


_ZIG_FPU = {
    ("armv7e-m", "sp"): "vfp4d16sp",
    ("armv7e-m", "dp"): "fp_armv8d16",
    ("armv8-m", "sp"): "fp_armv8d16sp",
    ("armv8.1-m", "dp"): "fp_armv8d16",
}

CORES = {
    core.name: core
    for core in (
        Core("cortex-m0", "armv6-m", unaligned=False),
        Core("cortex-m0plus", "armv6-m", unaligned=False),
        Core("cortex-m23", "armv8-m.base", unaligned=False),
        Core("cortex-m3", "armv7-m"),
        Core("cortex-m4", "armv7e-m", dsp=True, fpu="sp"),
        Core("cortex-m4+nofp", "armv7e-m", dsp=True),
        Core("cortex-m7", "armv7e-m", dsp=True, fpu="dp"),
        Core("cortex-m7+nofp.dp", "armv7e-m", dsp=True, fpu="sp"),
        Core("cortex-m33", "armv8-m.main", dsp=True, fpu="sp"),
        Core("cortex-m33+nofp", "armv8-m.main", dsp=True),
        Core("cortex-m33+nodsp+nofp", "armv8-m.main"),
        Core("cortex-m55", "armv8.1-m.main", dsp=True, mve=True, fpu="dp"),
        Core("cortex-m85", "armv8.1-m.main", dsp=True, mve=True, fpu="dp"),
    )
}

HOST = Core("host", "host", fpu="dp")


ALIASES = {
    "cortex-m0+": "cortex-m0plus",
    "cortex-m4f": "cortex-m4",
    "cortex-m7f": "cortex-m7",
    "cortex-m33f": "cortex-m33",
}
"""Names that others have for them; those of GCC have an FPU unless they say ``+nofp``."""


def find_core(name: str) -> Core:
    """The core of that name; ``host`` is one. Raises ``UsageError`` for an unknown one."""
    if name == HOST.name:
        return HOST
    known = ALIASES.get(name, name)
    if known not in CORES:
        raise UsageError(f"unknown core {name}", hint=f"known: {', '.join(CORES)}")
    return CORES[known]
