"""Proofs as text, as JSON, and as a C header of worst cases."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from crtgen.base.errors import UsageError
from crtgen.proof.checker import (
    ApplicationCall,
    Conversions,
    Error,
    Proof,
    TrustedCall,
    WindowsProof,
)

__all__ = ["as_dict", "functions_of", "lines_of", "lines_of_windows", "windows_as_dict", "worst_header"]


def functions_of(proof: Proof) -> dict[str, tuple[int, int]]:
    """Return the fewest and the most instructions in each function that the network's own function calls."""
    found: dict[str, tuple[int, int]] = {}
    for name, least, most in proof.calls:
        before = found.get(name, (0, 0))
        found[name] = before[0] + least, before[1] + most
    return found


def lines_of(proof: Proof, from_call: bool = False) -> list[str]:
    """Return what was checked and what could not be checked as lines of text; the last line is the verdict.

    With ``from_call`` the verdict covers the function from its call on.
    """
    if proof.stopped:
        return [
            f"it stopped at {proof.stopped}",
            f"{proof.model}: not checked, the run could not be followed to its end",
        ]
    least, most = proof.instructions
    count = (
        f"{least:,} to {most:,} instructions" if least < most else f"{most:,} instructions, for every input"
    )
    verdict, last = _verdict(proof)
    premises = proof.premises if from_call and proof.holds_from_call and not proof.holds else ()
    if premises:
        verdict = "checked from the call on"
        last = f"{_network_of(proof)}, if the application sees to the above"
    return [
        *([] if "llvm" in proof.certificate else ["decoders: binutils alone"]),
        *(_call_of_npu(call) for call in proof.trusted),
        "memory: every load and store is within constants, arena and stack, and aligned as the core asks",
        "registers: r4 to r11 and d8 to d15 are kept, every return goes back to its call",
        f"stack: {proof.stack:,} bytes; time: {count}{_cycles(proof)}{_without_npu(proof)}",
        f"constant time: {_constant_time(proof)}",
        f"reset: {_reset(proof)}",
        *([] if proof.reset.stopped else [f"interrupts: {_interrupts(proof)}"]),
        *(
            [f"runs: {proof.runs} after a start, of which the last is any later one"]
            if proof.runs > 1
            else []
        ),
        *_application(proof),
        *(f"the application sees to it: {premise}" for premise in premises),
        f"{proof.model}: {verdict}, {proof.outputs_proven:,} of {proof.outputs:,} outputs; {last}",
    ]


def lines_of_windows(found: WindowsProof) -> list[str]:
    """Return what was checked of a pipeline; the last line is the verdict."""
    stream, name = found.stream, found.stream.name
    if found.wrong:
        return [f"{name}: not checked: {found.wrong}"]
    first = stream.span - stream.before
    zeros = f" after {stream.before:,} zero{'s' * (stream.before > 1)}" if stream.before else ""
    later = f"the last {stream.span:,} after every {stream.hop:,}"
    copies = [f"{copy}, as in {tries:,} copies that were tried" for copy, tries in found.copies.items()]
    return [
        *([] if "llvm" in found.certificate else ["decoders: binutils alone"]),
        f"windows: the network gets the first {first:,} samples{zeros}, then {later}, and runs at no other "
        f"time, if calls of {name}_push have 0 to {found.most:,} samples each",
        f"restart: {name}_reset drops all samples",
        *(["events: each run is one, with the number of its last sample"] * stream.reports),
        *(f"trusted: {copy}" for copy in copies),
        *(f"premise: {premise}" for premise in found.premises),
        f"{name}: windows are checked; features, network and decision are not compared",
    ]


def windows_as_dict(found: WindowsProof) -> dict[str, Any]:
    return {
        "model": found.stream.name,
        "proven": False,
        "windows": not found.wrong,
        "wrong": found.wrong or None,
        **found.stream._asdict(),
        "samples_in_a_call": found.most,
        "trusted": dict(found.copies),
        "premises": found.premises,
        "certificate": dict(found.certificate),
    }


def _verdict(proof: Proof) -> tuple[str, str]:
    # The verdict, and what it is about.
    verdict, last = "checked", _network_of(proof)
    if proof.trusted and proof.holds:
        verdict = "checked but for the NPU"
    if proof.network.uncompared and proof.reset.stopped:
        verdict, last = "not checked: reset", proof.reset.stopped
    elif proof.network.uncompared:
        verdict, last = "memory is checked", proof.network.uncompared
        if proof.error is not None:
            last += _error(proof.error, proof.outputs)
    elif proof.is_computed and proof.application.wrong:
        verdict, last = "not checked: application", proof.application.wrong
    elif proof.is_computed and not proof.holds:
        verdict = "not checked: reset"
        last = f"each is the network's if the core is started as the function needs it; {proof.reset.stopped}"
    elif not proof.holds:
        verdict, last = "not checked", "the rest is not"
        if proof.first_reason:
            last = f"the first that is not recognised: {proof.first_reason}"
    return verdict, last


def _network_of(proof: Proof) -> str:
    # What is said of each output.
    if proof.network.slides:
        said = "each is the network's on every window of every signal"
    else:
        said = "each is the network's for every input"
    open_to = dict.fromkeys(layer.said for layer in proof.network.layers if layer.said)
    said = "; ".join((said, *open_to))
    return f"{said} {_trusting(proof)}" if proof.trusted else said


def _application(proof: Proof) -> list[str]:
    # What an application uses, as far as the image has it.
    found = proof.application
    if found.wrong:
        return [f"application: {found.wrong}"]
    said = [f"{proof.model}_run moves inputs and outputs, and returns the status"] * found.followed
    said += [f"{proof.model}_reset leaves the states' first values"] * found.resets
    said += [f"the steps of {proof.model}_step compute the same"] * found.steps
    said += [f"{proof.model}_push computes the same, {_rows_of(found)} in a call"] if found.pushes else []
    said += ["the description of the tensors is the network's"] * found.described
    if found.served:
        said.append("a host's copies to inputs and from outputs move their bytes, and its runs compute once")
    if found.conversions.followed:
        said.append(_conversions(found.conversions))
    return [f"application: {'; '.join(said)}"] if said else []


def _rows_of(found: ApplicationCall) -> str:
    if found.pushes == found.rows:
        return "any number of rows"
    return "one row" if found.pushes == 1 else f"up to {found.pushes} rows"


def _conversions(found: Conversions) -> str:
    said = f"{' and '.join(found.followed)} {_AGREE[len(found.followed) > 1]} for every value"
    if not found.trusted:
        return said
    trusted = ", ".join(found.trusted)
    as_tried = f"as with {found.tries:,} operands that were tried"
    return f"{said}, if the compiler's {trusted} are IEEE 754's, {as_tried}"


_AGREE = {True: "compute the documented formulas", False: "computes the documented formula"}


def _trusting(proof: Proof) -> str:
    # The condition of a verdict: what is trusted of the NPU.
    layers = sum(len(call.layers) for call in proof.trusted)
    calls = "its call" if len(proof.trusted) == 1 else f"its {len(proof.trusted)} calls"
    which = "1 layer" if layers == 1 else f"{layers} layers"
    return f"if the NPU computes the {which} of {calls} as crtgen's model of it does"


def _call_of_npu(call: TrustedCall) -> str:
    layers = ", ".join(f"{n} {name}" for n, name in zip(call.layers, call.operators, strict=True))
    if not call.samples:
        return f"NPU: an {call.npu}, whose outputs are not compared"
    return (
        f"NPU: an {call.npu} is trusted with {layers}; for {call.samples} random inputs crtgen's model of it "
        "gives the network's values; so is its driver"
    )


def _without_npu(proof: Proof) -> str:
    return ", without the NPU and its driver" if proof.trusted else ""


def _constant_time(proof: Proof) -> str:
    if proof.varying:
        return f"no, {', '.join(proof.varying)} depends on an input"
    npu = "; nothing is said of the NPU" if proof.trusted else ""
    return f"no branch, no address and no duration of an instruction depends on an input{npu}"


def _cycles(proof: Proof) -> str:
    if not proof.cycles:
        return ""
    waits = f"waits {proof.timing.waits} cycles for each word" if proof.timing.waits else "never waits"
    alone = "" if proof.timing.is_published else ", one instruction after the other"
    return f", at most {proof.cycles:,} cycles ({proof.timing.core}{alone}, memory {waits})"


def _error(error: Error, outputs: int) -> str:
    if error.reason:
        return f"; no bound of their error: {error.reason}"
    which = "each is" if error.outputs == outputs else f"{error.outputs:,} are"
    inputs = f"inputs from -{error.reach:g} to {error.reach:g}"
    return f" bit by bit; {which} within {error.most:.3g} of the network's for {inputs}"


def _reset(proof: Proof) -> str:
    reset = proof.reset
    if reset.stopped:
        return reset.stopped
    return (
        f"from the vector table at {reset.vectors:#x} to main, where variables and copied code "
        "are what they ought to be, and to the call; "
        f"{reset.reads:,} reads and {reset.writes:,} writes of devices; {reset.stack:,} bytes in use, the "
        f"network's {proof.stack:,} and those of interrupts fit into the stack's {reset.reserved:,}, apart "
        "from the arena"
    )


def _interrupts(proof: Proof) -> str:
    found = proof.interrupts
    if not found.handlers:
        return "there are no handlers but that of faults"
    count = "1 handler" if found.handlers == 1 else f"{found.handlers} handlers"
    return (
        f"{count}, followed from any state: nothing of the network's is written, registers are given back; "
        f"at most {found.stack:,} bytes of stack, one within the other"
    )


def as_dict(proof: Proof) -> dict[str, Any]:
    return {
        "model": proof.model,
        "architecture": proof.architecture,
        "proven": proof.is_proven,
        "proven_but_for_npu": proof.holds if proof.trusted else None,
        "proven_from_call": proof.holds_from_call and not proof.trusted,
        "premises": list(proof.premises),
        "trusted": [asdict(call) for call in proof.trusted],
        "outputs": proof.outputs,
        "outputs_proven": proof.outputs_proven,
        "stopped": proof.stopped or None,
        "forgotten_bytes": proof.forgotten,
        "first_reason": proof.first_reason or None,
        "memory_safe": not proof.stopped and not proof.reset.stopped,
        "registers_kept": not proof.stopped,
        "instructions": {"least": proof.instructions[0], "most": proof.instructions[1]},
        "constant_time": not proof.stopped and not proof.varying,
        "time_depends_on": list(proof.varying),
        "cycles": {"most": proof.cycles, **asdict(proof.timing)} if proof.cycles else None,
        "calls": [{"function": f, "least": a, "most": b} for f, a, b in proof.calls],
        "stack_bytes": proof.stack,
        "reset": asdict(proof.reset),
        "interrupts": {"handlers": proof.interrupts.handlers, "stack_bytes": proof.interrupts.stack},
        "runs": proof.runs,
        "application": {
            "run_followed": proof.application.followed,
            "steps_followed": proof.application.steps,
            "rows_in_a_call": proof.application.pushes,
            "reset_followed": proof.application.resets,
            "conversions_followed": list(proof.application.conversions.followed),
            "conversions_trusted": list(proof.application.conversions.trusted),
            "copies_followed": proof.application.served,
            "described": proof.application.described,
            "wrong": proof.application.wrong or None,
        },
        "error": None if proof.error is None else asdict(proof.error),
        "layers": [asdict(layer) for layer in proof.layers],
        "cpu_seconds": round(proof.seconds, 2),
        "certificate": proof.certificate,
    }


def worst_header(proof: Proof) -> str:
    """Return a C header with the worst case of a proven image. Raises ``UsageError`` for an image with an
    NPU.
    """
    if proof.trusted:
        raise UsageError(
            "the worst-case time of the NPU is not known, so no header can be written",
            where=proof.model,
            hint="leave out --header, or --npu",
        )
    name = re.sub(r"\W", "_", proof.model).upper()
    figures = {"INSTRUCTIONS": proof.instructions[1], "STACK": proof.stack}
    if proof.cycles:
        figures["CYCLES"] = proof.cycles
    core, waits = proof.timing.core, proof.timing.waits
    of = ""
    if proof.cycles:
        alone = "" if proof.timing.is_published else ", each instruction alone"
        of = f"\n * Cycles are those of {core}{alone}, with {waits} wait states at every word."
    return f"""/*
 * The worst case of an inference, {proof.model}_compute, with its bytes of stack.{of}
 * Proven by crtgen prove of the image whose loaded segments have the SHA-256
 * {proof.certificate["image_sha256"]}. Generated: do not edit.
 */
#ifndef {name}_WORST_H
#define {name}_WORST_H

{_defines(name, figures)}
#endif
"""


def _defines(name: str, figures: Mapping[str, int]) -> str:
    return "".join(f"#define {name}_WORST_{what} {value}\n" for what, value in figures.items())
