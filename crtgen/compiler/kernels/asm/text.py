"""Routines as the text of a ``.S`` file, which the C preprocessor processes."""

from collections.abc import Iterable, Iterator

from crtgen.compiler.kernels.asm.routine import Instruction, Label, Routine, StackFrame

__all__ = ["assembly_file"]

_HEAD = """    .syntax unified
    .thumb
    .cfi_sections .debug_frame

#ifdef __ARM_FEATURE_PAC_DEFAULT /* as -mbranch-protection asks: the return address is signed */
#define CRT_PC lr
    .equ crt_signature, 8
    .macro crt_sign
    pac     r12, lr, sp
    str     r12, [sp, #-8]!
    .cfi_adjust_cfa_offset 8
    .endm
    .macro crt_return
    ldr     r12, [sp], #8
    aut     r12, lr, sp
    bx      lr
    .endm
#else
#define CRT_PC pc
    .equ crt_signature, 0
    .macro crt_sign
    .endm
    .macro crt_return
    .endm
#endif
"""


_FPU = """#ifndef __ARM_FP
#error "these functions use the FPU: compile with -mfloat-abi=hard and its -mcpu; on Zephyr, set CONFIG_FPU=y"
#endif
"""


def assembly_file(title: str, routines: Iterable[tuple[str, Routine]], check: str = "") -> str:
    """Return the routines under their symbols, below a comment and the ``check`` of the core."""
    named = list(routines)
    texts = ["\n".join(_lines(symbol, routine)) for symbol, routine in named]
    fpu = _FPU if any(routine.uses_fpu for _, routine in named) else ""
    return f"/* {title} */\n{check}{fpu}{_HEAD}\n" + "\n\n".join(texts) + "\n"


def _lines(symbol: str, routine: Routine) -> Iterator[str]:
    yield f"/* {routine.purpose}" if routine.purpose else f"/* {routine.name}"
    yield ""
    yield f"   {routine.prototype(symbol)}"
    for role, registers in routine.roles:
        yield f"   {', '.join(registers)}: {role}"
    yield "*/"
    yield f'    .section .text.{symbol}, "ax", %progbits'
    yield "    .balign 4"
    yield f"    .global {symbol}"
    yield f"    .type   {symbol}, %function"
    yield "    .thumb_func"
    yield f"{symbol}:"
    yield "    .cfi_startproc"
    yield from _begin(routine.frame)
    for line in routine.body:
        yield _line(line).replace(".L_", f".L{symbol}_")
    yield from _end(routine.frame)
    yield "    .cfi_endproc"
    yield f"    .size   {symbol}, . - {symbol}"
    signature = " + crt_signature" if routine.frame.core else ""
    yield f"    .equ    crt_stack_of_{symbol}, {routine.stack}{signature}"
    for name, words in routine.tables:
        yield f'    .section .rodata.{symbol}, "a", %progbits'
        yield "    .balign 4"
        yield f".L{symbol}_{name}:"
        yield from (f"    .word   {', '.join(map(hex, words[i : i + 8]))}" for i in range(0, len(words), 8))


def _line(line: Instruction | Label) -> str:
    if isinstance(line, Label):
        return f"{line.name}:"
    text = f"    {line.mnemonic:<7} {', '.join(line.operands)}"
    return f"{text} // {line.note}" if line.note else text


def _begin(frame: StackFrame) -> Iterator[str]:
    if frame.core:
        yield "    crt_sign"
    for number, line in enumerate(frame.begin):
        yield _line(line)
        if line.mnemonic == "mov":
            continue
        pushed = frame.saved(number)
        size = frame.local if line.mnemonic == "sub" else len(pushed) * (8 if line.mnemonic == "vpush" else 4)
        yield f"    .cfi_adjust_cfa_offset {size}"
        for place, register in enumerate(pushed):
            if line.mnemonic == "vpush":
                yield f"    .cfi_rel_offset {register}, {8 * place}"
            elif register in frame.core:
                yield f"    .cfi_rel_offset {register}, {4 * place}"


def _end(frame: StackFrame) -> Iterator[str]:
    for line in frame.end:
        if line.mnemonic == "pop" and "pc}" in line.operands[0]:
            yield _line(line).replace("pc}", "CRT_PC}")
            yield "    crt_return"
            return
        yield _line(line)
        if line.mnemonic == "pop":
            yield f"    .cfi_adjust_cfa_offset -{4 * len(line.operands[0].split())}"
        elif line.mnemonic not in ("bx", "mov"):
            size = 16 * len(frame.vectors) if line.mnemonic == "vpop" else frame.local + 4 * len(frame.kept)
            yield f"    .cfi_adjust_cfa_offset -{size}"
