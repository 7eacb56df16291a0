"""Targets of calls through pointers in the runtime and in generated programs, which an ELF file does not
state.

Names may be patterns.
"""

from collections.abc import Iterable

from crtgen.base.endpoints import EXECUTOR, GLOBALS

__all__ = ["FAULTS", "ROOT", "ROOTS", "indirect_calls"]

ROOT = "crt_reset"
"""Function at which the stack starts."""

ROOTS = {"slot": "crt_slot_run"}
"""Functions at which the stack starts, for project types other than a server."""

FAULTS = ("crt_fault",)
"""Handlers that start the stack afresh."""

_PORT = ("port_*",)
_MODEL = ("*_compute",)
_HALVES = ("*_half0", "*_half1")
_ASSEMBLY = tuple(
    f"*_{part}_*" for part in ("group", "windows", "copy", "pair", "fill", "runs", "channels", "insert")
)
_EXECUTOR = tuple(endpoint.run for endpoint in EXECUTOR)
_GLOBALS = tuple(endpoint.run for endpoint in GLOBALS)

_RUNTIME: dict[str, tuple[str, ...]] = {
    "crt_*": _PORT,
    "crt_serve*": ("crt_serve_*",),
    "crt_function_call": _GLOBALS,
    "crt_module_call": _EXECUTOR,
    "crt_slots_*": ("flash_erase", "flash_write"),
    # Only in QEMU does the pointer lead anywhere; a function that is called anyway says so elsewhere.
    "crt_npu_run": ("npu_on_the_host", "crt_npu_clean"),
    "crt_both": _HALVES,
    "crt_worker": _HALVES,
    "crt_executor_run": _MODEL,
    "main": _MODEL,
    "crt_fault_*": ("crt_server_line", "print_line"),
    **{f"crt_{kernel}*": _ASSEMBLY for kernel in ("dsp_conv", "mve_conv", "mve_depthwise")},
}
_REGISTERED = ("crt_module_*", "*_compute", "*_call")


def indirect_calls(registered: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return, by caller, the possible targets of calls through pointers in an image with these registered
    functions.

    Targets are the port's callbacks, the RPC's services, registered functions, a model's ``run``, and the
    registered operators of a graph executor.
    """
    functions = tuple(registered)
    return _RUNTIME | {caller: (*_RUNTIME.get(caller, ()), *functions) for caller in _REGISTERED}
