"""The first steps after a chip's reset, as C code."""

from dataclasses import dataclass

from crtgen.boards import Board, RegisterStep, all_steps

__all__ = ["StepView", "registers", "step_view"]


@dataclass(frozen=True, slots=True)
class StepView:
    note: str
    statement: str = ""
    until: str = ""
    condition: str = ""
    then: tuple["StepView", ...] = ()


def step_view(step: RegisterStep) -> StepView:
    name = _name(step)
    found = f"({name} & {step.mask:#x}u)" if step.mask + 1 != 1 << step.bits else name
    if step.operation == "wait":
        return StepView(step.note, until=f"{found} != {step.value:#x}u")
    if step.operation in ("if", "unless"):
        operator = "==" if step.operation == "if" else "!="
        then = tuple(step_view(inner) for inner in step.then)
        return StepView(step.note, condition=f"{found} {operator} {step.value:#x}u", then=then)
    return StepView(step.note, statement=_statement(step, name))


def _statement(step: RegisterStep, name: str) -> str:
    ones, zeros = step.value, step.mask & ~step.value
    cast = f"(uint{step.bits}_t)" if step.bits < 32 else ""
    if step.operation == "pairs":
        return f"copy_pairs(&{name}, {step.value});"
    if step.operation == "write":
        return f"{name} = {ones:#x}u;"
    if not zeros:
        return f"{name} |= {ones:#x}u;"
    if not ones:
        return f"{name} &= {cast}~{zeros:#x}u;"
    changed = f"({name} & ~{step.mask:#x}u) | {ones:#x}u"
    return f"{name} = {cast}({changed});" if cast else f"{name} = {changed};"


def registers(board: Board) -> tuple[tuple[str, str, str], ...]:
    steps = all_steps(board.start)
    return tuple({(_name(s), f"{s.address:#010x}", f"uint{s.bits}_t"): None for s in steps})


def _name(step: RegisterStep) -> str:
    return step.register.replace(".", "_").replace("[", "_").replace("]", "")
