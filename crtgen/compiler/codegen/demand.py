"""Requirements of generated code on the compiler and the core, checked by preprocessor directives."""

from crtgen.boards import Core

__all__ = ["core_check"]


def core_check(core: Core, name: str) -> str:
    """Return preprocessor lines that raise an error, naming the core, if the code is compiled for a less
    capable one.

    Portable code, for the host and for architectures other than Arm's, needs no such lines.
    """
    if not core.thumb:
        return ""
    if core.mve:
        missing = "!defined(__ARM_FEATURE_MVE)"
    elif core.dsp:
        missing = "!defined(__ARM_FEATURE_DSP)"
    else:
        missing = f"!defined(__ARM_ARCH_ISA_THUMB) || (__ARM_ARCH_ISA_THUMB < {1 if core.narrow else 2})"
    flags = f"-mcpu={core.name}{' -mfloat-abi=hard' if core.mve else ''}"
    advice = f"compile with {flags}, or generate it for the core that you have"
    return f'#if {missing}\n#error "{name} is for {core.name}: {advice}"\n#endif\n'
