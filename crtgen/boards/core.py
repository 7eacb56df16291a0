"""Properties of processor cores that code generation depends on."""

from dataclasses import dataclass

from crtgen.base.errors import UsageError

__all__ = ["ALIASES", "CORES", "HOST", "Core", "find_core"]


@dataclass(frozen=True, slots=True)
class Core:
    """A processor core: the instructions that it has, and its name in compilers.

    ``arch`` is the architecture (``armv6-m``, ``armv8-m.base``, ``armv7-m``, ``armv7e-m``, ``armv8-m.main``,
    ``armv8.1-m.main``, ``host``); ``fpu`` is ``none``, ``sp`` or ``dp``; ``dsp`` means the DSP extension
    (SMLAD, SXTB16, SSAT ...), ``mve`` means Helium with integers and floats. ``name`` is GCC's name, with
    ``+no...`` for features that this implementation lacks; compilers that do not know the name are given
    ``older``, a core with the same instructions. For architectures other than Arm's, only portable C is
    generated.
    """

    name: str
    arch: str
    dsp: bool = False
    mve: bool = False
    fpu: str = "none"
    unaligned: bool = True
    older: str = ""

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def thumb(self) -> bool:
        """True if the core executes Thumb instructions; all assembly consists of these."""
        return self.arch.startswith("armv")

    @property
    def family(self) -> str:
        return self.name.partition("+")[0]

    @property
    def measured(self) -> str:
        """Core whose measurements are used for this one, because compilers generate nearly the same code for
        both.
        """
        if not self.thumb:
            return "cortex-m7" if self.arch == "host" else "cortex-m3"
        if self.mve:
            return "cortex-m55"
        if not self.dsp:
            return "cortex-m0plus" if self.narrow else "cortex-m3"
        return self.pipeline if self.arch == "armv7e-m" else "cortex-m33"

    @property
    def pipeline(self) -> str:
        """Core whose pipeline model is used for this one; empty if it does not execute Thumb code or no model
        is known.
        """
        if self.narrow or self.mve:
            return "cortex-m0plus" if self.narrow else "cortex-m55"
        if self.arch == "armv7e-m":
            return "cortex-m7" if self.family == "cortex-m7" else "cortex-m4"
        return {"armv7-m": "cortex-m3", "armv8-m.main": "cortex-m33", "armv8.1-m.main": "cortex-m33"}.get(
            self.arch, ""
        )

    @property
    def fast_fma(self) -> bool:
        """True if a fused multiply-add is as fast as a multiplication; on M4 it takes three cycles."""
        return self.family in ("cortex-m7", "cortex-m55", "cortex-m85")

    @property
    def vfp(self) -> bool:
        """True if float32 is computed one value at a time: an FPU, but no Helium."""
        return self.fpu != "none" and self.thumb and not self.narrow and not self.mve

    @property
    def base(self) -> bool:
        """True if the core has neither the DSP extension nor Helium."""
        return self.thumb and not self.dsp

    @property
    def narrow(self) -> bool:
        """True if nearly all of its instructions have 16 bits (Armv6-M, Armv8-M Baseline)."""
        return self.arch in ("armv6-m", "armv8-m.base")

    @property
    def has_caches(self) -> bool:
        """True if the core may have caches; its registers tell whether it has."""
        return self.family in ("cortex-m7", "cortex-m55", "cortex-m85")

    @property
    def has_vtor(self) -> bool:
        """True if the vector table can be somewhere other than address 0."""
        return self.name != "cortex-m0"

    @property
    def fpv5(self) -> bool:
        """True if the FPU has VMAXNM and VMINNM; the M4's does not."""
        return self.fpu != "none" and self.name != "cortex-m4"

    @property
    def gcc_flags(self) -> tuple[str, ...]:
        """``-mcpu`` and the floating-point options of arm-none-eabi-gcc; empty for other architectures."""
        if not self.thumb:
            return ()
        abi = ("-mfloat-abi=soft",) if self.fpu == "none" else ("-mfloat-abi=hard", "-mfpu=auto")
        return (f"-mcpu={self.older or self.name}", "-mthumb", *abi)

    @property
    def zig_flags(self) -> tuple[str, ...]:
        """Target and core in Zig's notation; extensions that Zig treats as optional are added one by one."""
        if not self.thumb:
            return ()
        abi = "eabi" if self.fpu == "none" else "eabihf"
        features = [_ZIG_FPU[self.arch.removesuffix(".main"), self.fpu]] if self.fpu != "none" else []
        features += [name for name, has in (("dsp", self.dsp), ("mve_fp", self.mve)) if has]
        base = self.family.replace("-", "_")
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
        Core("cortex-m35p", "armv8-m.main", dsp=True, fpu="sp"),
        Core("cortex-m55", "armv8.1-m.main", dsp=True, mve=True, fpu="dp"),
        Core("cortex-m52", "armv8.1-m.main", dsp=True, mve=True, fpu="dp", older="cortex-m55"),
        Core("cortex-m85", "armv8.1-m.main", dsp=True, mve=True, fpu="dp", older="cortex-m55"),
    )
}

HOST = Core("host", "host", fpu="dp")


ALIASES = {
    "cortex-m0+": "cortex-m0plus",
    "cortex-m4f": "cortex-m4",
    "cortex-m7f": "cortex-m7",
    "cortex-m33f": "cortex-m33",
}
"""Other names of cores. A name without ``+nofp`` has an FPU, as in GCC."""


def find_core(name: str) -> Core:
    """Return the core of that name; ``host`` is one. Raises ``UsageError`` for an unknown one."""
    if name == HOST.name:
        return HOST
    known = ALIASES.get(name, name)
    if known not in CORES:
        raise UsageError(f"unknown core {name}", hint=f"known: {', '.join(CORES)}")
    return CORES[known]
