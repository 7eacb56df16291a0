"""Command streams written by hand."""

from crtgen.npu.registers import LONG, SHORT

__all__ = ["add", "stream"]

_CODES = {register.name: register.code for register in (*SHORT.values(), *LONG.values())}
_IS_LONG = {register.name for register in LONG.values()}


def command(name: str, value: int = 0, parameter: int = 0) -> bytes:
    """Return one command; ``value`` is the parameter of a short one and the payload of a long one."""
    if name in _IS_LONG:
        word = parameter << 16 | 0x4000 | _CODES[name]
        return word.to_bytes(4, "little") + value.to_bytes(4, "little")
    return (value << 16 | _CODES[name]).to_bytes(4, "little")


def stream(*commands: tuple[str, int] | tuple[str, int, int]) -> bytes:
    """Return commands as a stream, with STOP at its end."""
    return b"".join(command(*each) for each in (*commands, ("STOP", 0xFFFF)))


def add(**changed: int) -> bytes:
    """Return a stream that adds two maps of int8 with 2x3x4 elements, of regions 3 and 4, into region 5.

    ``changed`` are registers with another value than that takes.
    """
    registers = {
        "IFM_REGION": 3,
        "IFM2_REGION": 4,
        "OFM_REGION": 5,
        **{f"{name}_{part}_M1": 1 for name in ("IFM", "IFM2", "OFM") for part in ("HEIGHT0", "HEIGHT1")},
        **{f"{name}_WIDTH0_M1": 2 for name in ("IFM", "IFM2", "OFM")},
        **{f"{name}_BASE{tile}": 0 for name in ("IFM", "IFM2", "OFM") for tile in range(4)},
        **{f"{name}_STRIDE_Y": 12 for name in ("IFM", "IFM2", "OFM")},
        **{f"{name}_STRIDE_X": 4 for name in ("IFM", "IFM2", "OFM")},
        **{f"{name}_STRIDE_C": 1 for name in ("IFM", "IFM2", "OFM")},
        **{f"{name}_PRECISION": 1 for name in ("IFM", "IFM2")},
        "OFM_PRECISION": 0x8101,
        "OFM_HEIGHT_M1": 1,
        "OFM_WIDTH_M1": 2,
        "OFM_DEPTH_M1": 3,
        "ACTIVATION_MIN": 0xFF80,
        "ACTIVATION_MAX": 0x7F,
        "OPA_SCALE": 1,
        "OPB_SCALE": 1,
        "OFM_SCALE": 1,
        "IFM2_BROADCAST": 0,
        **changed,
    }
    return stream(*registers.items(), ("ELEMENTWISE", 1))
