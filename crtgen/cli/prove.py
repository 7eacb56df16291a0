"""``crtgen prove``: checks that the linked image computes the network, for every input."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen.api.compiled import Compiled
from crtgen.api.image import Say
from crtgen.base import files as writing
from crtgen.base.errors import MismatchError, UsageError
from crtgen.boards import find_board
from crtgen.cli import choices, options
from crtgen.cli.groups import Compiling, Files, flattened
from crtgen.cli.output import Debug, Json, Output, guarded, note, table
from crtgen.network.pipeline import PIPELINE
from crtgen.proof.certificate import certificate_of, depth_of, stream_of, timing_of, window_of
from crtgen.proof.checker import UNKNOWN, Error, Proof, prove, prove_windows
from crtgen.proof.printed import (
    as_dict,
    functions_of,
    lines_of,
    lines_of_windows,
    windows_as_dict,
    worst_header,
)
from crtgen.proof.refute import Refutation, refute

__all__ = ["command"]


@flattened
def command(
    model: Annotated[
        Path, typer.Argument(help="The file of a network: .tflite, or quantised .onnx.", show_default=False)
    ],
    compiling: Compiling,
    files: Files,
    place: options.Place = None,
    toolchain: options.Toolchain = None,
    image: Annotated[
        Path | None, typer.Option(help="Check this ELF file instead of generating and building one.")
    ] = None,
    slot: Annotated[
        str | None, typer.Option(help="Check the image that crtgen slot makes for this slot of the board.")
    ] = None,
    counterexample: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the input that shows a fault, as a case for crtgen verify."),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what python -m crtproof, a second checker, follows."),
    ] = None,
    header: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a C header with the worst case of time and stack."),
    ] = None,
    from_call: Annotated[
        bool,
        typer.Option(
            help="For an application with a start of its own: check what the network's function does once it "
            "is called, and name what it asks of its caller."
        ),
    ] = False,
    reach: Annotated[
        float,
        typer.Option(
            metavar="R",
            min=0,
            help="For the error bound of float32 outputs: inputs are from -R to R.",
        ),
    ] = 1.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check that the image computes the network, for every input.

    The exit code is 0 only if every byte of the result was followed to the network's output. Otherwise crtgen
    looks for an input that shows a fault. Layers on an NPU are trusted to crtgen's model of it, and named.
    docs/soundness.md says what is taken for given and what is trusted.
    """
    with guarded(as_json, debug) as out:
        _check(compiling.cores, slot is not None, image is not None or bool(place))
        for file in filter(None, (header, counterexample, certificate)):
            writing.check_writable(file)
        if model.suffix == PIPELINE:
            _prove_windows(out, model, files, image)
        with out.stage() as say:
            board = built = None
            if image is None:
                compiled = _compiled(model, compiling, files, place, slot, say)
                generated = compiled.generate("slot" if slot else "standalone", slot=slot or "")
                built = generated.build(toolchain=toolchain, say=say)
                image, board = built.path, compiled.board
            say("proving")
            sliding = window_of(choices.sliding(compiling.sliding))
            timing = timing_of(board) if board else UNKNOWN
            proof = prove(image, model, timing=timing, window=sliding, reach=reach)
            found = None
            if certificate is not None and proof.is_computed:
                writing.write(certificate, certificate_of(proof))
            from_call = from_call or slot is not None  # the firmware calls it
            holds = proof.holds_from_call if from_call else proof.holds
            if holds:
                if header is not None:
                    writing.write(header, worst_header(proof).encode())
            elif not proof.network.uncompared and sliding is None:
                say("looking for an input that shows a fault")
                found = refute(proof, image, board if slot is None else None)
                if counterexample is not None and found.inputs:
                    found.write(counterexample, proof.network)
        depth = depth_of(built, proof.model) if built else None
        more = {"counterexample": found.to_dict() if found else None, "stack_by_call_graph": depth}
        out.result(
            {**as_dict(proof), **more}, lambda console: _print(console, proof, depth, found, from_call)
        )
        if not holds:
            raise typer.Exit(MismatchError.exit_code)


def _prove_windows(out: Output, model: Path, files: Files, image: Path | None) -> None:
    # Of a pipeline, the windows that its network gets are checked, and nothing else, so this always exits.
    if image is None:
        raise UsageError(
            "a standalone image of a pipeline takes no samples, so there is nothing to check",
            where=str(model),
            hint="give the ELF file of an application with --image",
        )
    loaded = files.load_network(model)
    assert loaded.pipeline is not None
    with out.stage() as say:
        say("proving")
        found = prove_windows(image, model, stream_of(loaded.name, loaded.pipeline))
    out.result(windows_as_dict(found), lambda console: console.print("\n".join(lines_of_windows(found))))
    raise typer.Exit(MismatchError.exit_code)


def _check(cores: int, is_slot: bool, is_other: bool) -> None:
    # Refuses options that do not go together.
    if cores > 1:
        raise UsageError("prove supports one core only", hint="leave out --cores, also in crtgen.toml")
    if is_slot and is_other:
        raise UsageError("--slot builds an image of its own", hint="leave out --image and --place")


def _compiled(
    model: Path, compiling: Compiling, files: Files, place: options.Place, slot: str | None, say: Say
) -> Compiled:
    # The model for a board, or for a slot of it.
    say(f"reading {model.name}")
    loaded = files.load(model)
    if slot is None:
        return compiling.compile([loaded], say, place=place or ())
    return compiling.compile([loaded], say, choices.slotted(find_board(compiling.board)))


def _print(
    console: Console, proof: Proof, depth: int | None, found: Refutation | None, from_call: bool
) -> None:
    right = ("outputs", "checked", "needed", "on the NPU")
    rows = table(
        "", "layer", "outputs", "checked", "needed", "missing", *right[3:] * bool(proof.trusted), right=right
    )
    for layer in proof.layers:
        missing = f"{layer.missing:,}" if layer.needed else ""
        counts = (f"{n:,}" for n in (layer.outputs, layer.proven, layer.needed))
        trusted = (f"{layer.trusted:,}",) * bool(proof.trusted)
        rows.add_row(str(layer.number), layer.operator, *counts, missing, *trusted)
    console.print(rows)
    if proof.error is not None and proof.error.layers:
        _print_error(console, proof.error)
    for layer in proof.layers:
        for reason in layer.reasons[:1]:
            console.print(f"layer {layer.number}, {layer.operator}: {reason}")
    if not proof.stopped:
        _print_functions(console, proof, depth)
    for line in (*lines_of(proof, from_call), *(found.lines() if found else ())):
        console.print(line)
    if "llvm" not in proof.certificate and not proof.stopped:
        note("hint: pip install 'crtgen[zig]' has LLVM decode each instruction, too")


def _print_error(console: Console, error: Error) -> None:
    # Error bound of each float32 layer, and the size of its values.
    rows = table("", "layer", "error", "size", right=("error", "size"))
    for number, name, most, size in error.layers:
        rows.add_row(str(number), name, f"{most:.3g}", f"{size:.3g}")
    console.print(rows)


def _print_functions(console: Console, proof: Proof, depth: int | None) -> None:
    # Instructions by function; the stack as the call graph has it, where that is known.
    rows = table("function", "least", "most", right=("least", "most"))
    for name, (least, most) in functions_of(proof).items():
        rows.add_row(name, f"{least:,}", f"{most:,}")
    console.print(rows)
    if depth is not None:
        fault = "" if proof.stack <= depth else ": a fault of crtgen's, please report it"
        console.print(f"stack by the call graph: at most {depth:,} bytes{fault}")
