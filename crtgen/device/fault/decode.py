"""The fault status registers in words. Bits of CFSR and HFSR: Armv8-M Reference Manual, D1.2."""

from crtgen.device.fault.record import Fault

__all__ = ["GUARD", "address_of", "kind_of", "status_words"]

_MMFAR_VALID, _BFAR_VALID = 1 << 7, 1 << 15
_STACKING = 1 << 4 | 1 << 12
_STACK_LIMIT = 1 << 20
_NMI = 2
GUARD = 512
"""Exception number, used by no core, for an overwritten guard of an arena."""

_CFSR = {
    0: ("IACCVIOL", "code where there is none"),
    1: ("DACCVIOL", "access to protected memory"),
    3: ("MUNSTKERR", "the stack cannot be read at the end of an exception"),
    4: ("MSTKERR", "the stack cannot be written by an exception"),
    5: ("MLSPERR", "registers of the FPU cannot be stored"),
    8: ("IBUSERR", "bus error while fetching code"),
    9: ("PRECISERR", "bus error"),
    10: ("IMPRECISERR", "bus error of an earlier write"),
    11: ("UNSTKERR", "bus error at the end of an exception"),
    12: ("STKERR", "bus error while an exception stored registers"),
    13: ("LSPERR", "bus error while registers of the FPU were stored"),
    16: ("UNDEFINSTR", "undefined instruction"),
    17: ("INVSTATE", "jump to an address that holds no Thumb code"),
    18: ("INVPC", "invalid return from an exception"),
    19: ("NOCP", "the FPU is off or absent"),
    20: ("STKOF", "stack overflow"),
    24: ("UNALIGNED", "unaligned access"),
    25: ("DIVBYZERO", "division by zero"),
}
_HFSR = {
    1: ("VECTTBL", "the vector table cannot be read"),
    30: ("FORCED", "a fault within a fault handler, or while one was masked"),
    31: ("DEBUGEVT", "a breakpoint without a debugger"),
}


def status_words(fault: Fault) -> tuple[str, ...]:
    """Return the names of the bits that are set, and their meaning."""
    rows = [row for bit, row in _CFSR.items() if fault.cfsr >> bit & 1]
    rows += [row for bit, row in _HFSR.items() if fault.hfsr >> bit & 1]
    return tuple(f"{name}: {text}" for name, text in rows)


def address_of(fault: Fault) -> int | None:
    if fault.exception == GUARD:
        return fault.bfar
    if fault.cfsr & _MMFAR_VALID:
        return fault.mmfar
    return fault.bfar if fault.cfsr & _BFAR_VALID else None


def kind_of(fault: Fault) -> str:
    if fault.exception == _NMI:
        return "watchdog: no progress"
    if fault.exception == GUARD:
        return "guard"
    below = bool(fault.stack_size) and fault.registers["sp"] < fault.stack_bottom
    if fault.cfsr & (_STACKING | _STACK_LIMIT) or below:
        return "stack overflow"
    meant = [text for bit, (_, text) in _CFSR.items() if fault.cfsr >> bit & 1]
    meant += [text for bit, (_, text) in _HFSR.items() if bit != 30 and fault.hfsr >> bit & 1]
    return meant[0] if meant else f"fault (exception {fault.exception})"
