"""What the pointers of the runtime and of the generated programs can reach: facts that no ELF has.

Names are patterns. A caller may have been inlined into the next one up, so both are listed.
"""

__all__ = ["FAULTS", "INDIRECT", "ONCE", "ROOT"]

ROOT = "crt_reset"
"""Where the stack starts."""

FAULTS = ("crt_fault",)
"""Handlers that start the stack afresh."""

_PORT = ("port_*",)
_MODEL = ("*_compute",)
_OPERATOR = ("tvmgen_*", "*_packed")
_TIMING = ("crt_time_evaluator", "crt_time_calibrate", "crt_time_measure", "crt_profile")
_BUILTIN = ("crt_global_*", "crt_executor_*", *_TIMING)
_FUNCTION = ("*_packed", *_BUILTIN)

INDIRECT: dict[str, tuple[str, ...]] = {
    "crt_*": _PORT,
    "crt_serve*": ("crt_serve_*",),
    "crt_call_builtin": _BUILTIN,
    "crt_call_packed": ("*_packed",),
    "crt_function_*": _FUNCTION,
    "crt_time_evaluate": _FUNCTION,
    "crt_time_repeat": _FUNCTION,
    "crt_time_runs": _FUNCTION,
    "crt_executor_run": _MODEL,
    "crt_time_measure": _MODEL,
    "crt_profile*": _MODEL,
    "main": _MODEL,
    "*_compute": _OPERATOR,
    "*_call": _OPERATOR,
}
"""By caller: the port's callbacks, the RPC's services, registered functions, a model's ``run``,
the operators of a graph executor."""

ONCE = ("crt_time_evaluate",)
"""Functions that never run inside themselves: a time evaluator times named functions, which it is not."""
