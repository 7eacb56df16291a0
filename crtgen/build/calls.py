"""What the pointers of the runtime and of the generated programs can reach: facts that no ELF has.

Names are patterns. A caller may have been inlined into the next one up, so both are listed.
"""

from collections.abc import Iterable

__all__ = ["FAULTS", "ONCE", "ROOT", "indirect_calls"]

ROOT = "crt_reset"
"""Where the stack starts."""

FAULTS = ("crt_fault",)
"""Handlers that start the stack afresh."""

_PORT = ("port_*",)
_MODEL = ("*_compute",)
_TIMING = ("crt_time_evaluator", "crt_time_calibrate", "crt_time_measure", "crt_profile")
_BUILTIN = ("crt_global_*", "crt_executor_*", *_TIMING)

_RUNTIME: dict[str, tuple[str, ...]] = {
    "crt_*": _PORT,
    "crt_serve*": ("crt_serve_*",),
    "crt_call_builtin": _BUILTIN,
    "crt_function_*": _BUILTIN,
    "crt_time_evaluate": _BUILTIN,
    "crt_time_repeat": _BUILTIN,
    "crt_time_runs": _BUILTIN,
    "crt_executor_run": _MODEL,
    "crt_time_measure": _MODEL,
    "crt_profile*": _MODEL,
    "main": _MODEL,
    "crt_fault_*": ("crt_server_line", "print_line"),
}
_REGISTERED = (
    "crt_call_packed",
    "crt_function_*",
    "crt_time_evaluate",
    "crt_time_repeat",
    "crt_time_runs",
    "*_compute",
    "*_call",
)


def indirect_calls(registered: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What calls through pointers reach, by caller, in an image with these functions in its registry.

    They are the port's callbacks, the RPC's services, registered functions, a model's ``run``, and the
    operators of a graph executor, which are registered, too.
    """
    functions = tuple(registered)
    return _RUNTIME | {caller: (*_RUNTIME.get(caller, ()), *functions) for caller in _REGISTERED}


ONCE = ("crt_time_evaluate",)
"""Functions that never run inside themselves: a time evaluator times named functions, which it is not."""
