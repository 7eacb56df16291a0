"""From the report of a fault to the error that Python raises."""

from crtgen.base.errors import DeviceFault
from crtgen.device.fault.decode import GUARD, address_of, kind_of, status_words
from crtgen.device.fault.record import REGISTERS, Fault
from crtgen.device.fault.symbols import Symbols

__all__ = ["describe"]

_MOST_CALLS = 32


def describe(fault: Fault, symbols: Symbols | None = None) -> DeviceFault:
    """Make the error for a fault, with names from the image instead of addresses.

    The callers are all words on the stack that follow a call in the code, so outdated ones may be among them.
    """
    if fault.exception == GUARD:
        return _guard(fault, symbols)
    pc, lr = fault.registers["pc"], fault.registers["lr"]
    stack = fault.words(fault.registers["sp"], fault.stack_top)
    behind = [value for _, value in stack if symbols and symbols.is_return(value)]
    returns = [*([lr] if symbols and pc and symbols.is_return(lr) else []), *behind]
    function = symbols.function_at(pc) if symbols and pc else ""
    callers = [symbols.function_at(value & ~1) for value in returns] if symbols else []
    kind, address = kind_of(fault), address_of(fault)
    layer = _layer(symbols, [function, *callers], returns) if symbols else ""
    at = f" at {address:#010x}" if address is not None and kind != "stack overflow" else ""
    from_caller = f", called from {callers[0]}" if callers and not function else ""
    within = f" in {function}" if function else from_caller
    of_layer = f" (layer {layer})" if layer else ""
    after = f", pc {pc:#010x}" if pc else ""
    size = f", {fault.stack_used} of {fault.stack_size} B of stack used" if fault.stack_size else ""
    return DeviceFault(
        f"{kind}{at}{within}{of_layer}{after}{size}",
        where="device",
        hint=_hint(kind),
        kind=kind,
        status=status_words(fault),
        registers=dict(fault.registers),
        fault_registers={n: getattr(fault, n) for n in ("cfsr", "hfsr", "mmfar", "bfar")},
        address=address,
        function=function,
        layer=layer,
        callers=_folded(callers)[:_MOST_CALLS],
        stack_used=fault.stack_used,
        stack_size=fault.stack_size,
        uptime=fault.uptime,
        memory=dict(fault.memory),
    )


def _guard(fault: Fault, symbols: Symbols | None) -> DeviceFault:
    # The error for an arena whose guard was overwritten. In the record, r0 and r1 are the addresses of the
    # names of the model and of the called function; r2 and r3 are start and size of the arena or of one of
    # its parts; r4 is the address of the part's name, or 0.
    named, ran, start, size, part_name = (fault.registers[f"r{i}"] for i in range(5))
    names = (symbols.text_at(address) if symbols else "" for address in (named, ran, part_name))
    model, function, part = names
    side = "below" if fault.bfar < start else "above"
    whole, place = "arena", "the arena"
    if part_name:
        whole, place = "part", f"the part {part} of the arena" if part else "a part of the arena"
    what = f"{function or 'a call'} wrote {side} {place} of {model or 'a model'}"
    return DeviceFault(
        f"guard: {what} at {fault.bfar:#010x}, the {whole} is {size} B from {start:#010x} on",
        where="device",
        hint="C that writes outside of its tensors: verify the model on the host, built with sanitizers",
        kind=kind_of(fault),
        status=(),
        registers=dict.fromkeys(REGISTERS, 0),
        fault_registers=dict.fromkeys(("cfsr", "hfsr", "mmfar", "bfar"), 0),
        address=fault.bfar,
        model=model,
        function=function,
        layer="",
        callers=(),
        stack_used=0,
        stack_size=0,
        uptime=fault.uptime,
        memory=dict(fault.memory),
    )


def _layer(symbols: Symbols, functions: list[str], returns: list[int]) -> str:
    # The layer of the innermost function that computes one.
    found = (symbols.layer_of(name, returns[i:]) for i, name in enumerate(functions) if name)
    return next(filter(None, found), "")


def _folded(names: list[str]) -> tuple[str, ...]:
    # The names, each once where it follows itself.
    return tuple(name for i, name in enumerate(names) if name and (i == 0 or names[i - 1] != name))


def _hint(kind: str) -> str:
    if kind == "stack overflow":
        return "generate with a larger --stack; `crtgen build` prints the worst case"
    return "crtgen run --core-dump FILE keeps registers and stack for gdb-multiarch"
