"""``crtgen check``: compares models with their budgets and with the locked figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.base import trust
from crtgen.base.errors import MismatchError, UsageError
from crtgen.base.files import read_text
from crtgen.base.quality import shortfalls
from crtgen.cli import options
from crtgen.cli.groups import Coding, Files, flattened
from crtgen.cli.output import Debug, Json, guarded
from crtgen.cli.settings import chosen_models
from crtgen.compiler.byoc import ETHOS_U
from crtgen.lab.measure.evaluation import evaluate_here
from crtgen.lab.measure.lock import (
    LOCK,
    Excess,
    Lock,
    LockEntry,
    compare,
    lock_entry,
    over,
    read_lock,
    source_of,
    write_lock,
)
from crtgen.lab.settings import ModelSettings
from crtgen.proof.certificate import own_proof, proof_key, prove_built
from crtgen.proof.printed import lines_of

__all__ = ["command"]


@dataclass(frozen=True, slots=True)
class _Locked(Coding):
    """Coding options whose default level is the one in the lock."""

    optimize: Annotated[
        str, typer.Option(help="speed, size, balanced or ram; default: the level in the lock.")
    ] = ""


@dataclass(frozen=True, slots=True)
class _Job:
    """A model for a board at a level; ``before`` is the locked state, ``after`` the current one.

    ``unproven`` is the reason why its image is not proven, if the settings require a proof. ``claimed``: the
    lock says that it is proven, but this computer has not proven it itself.
    """

    settings: ModelSettings
    compiled: api.Compiled
    before: LockEntry | None
    after: LockEntry
    unproven: str = ""
    claimed: bool = False

    @property
    def npu(self) -> bool:
        """True if an NPU computes some of the layers; a proof then covers only the others."""
        return self.settings.proven and any(
            library.name == ETHOS_U for module in self.compiled.modules for library in module.libraries
        )

    @property
    def is_new(self) -> bool:
        return self.before is None or self.before.source != self.after.source

    @property
    def locked_by(self) -> str:
        """The compiler of the lock's figures, if it is not the current one; otherwise empty."""
        before, after = self.before, self.after
        return "" if before is None or before.toolchain == after.toolchain else before.toolchain


@flattened
def command(
    coding: _Locked,
    files: Files,
    models: options.MoreModels = None,
    board: options.Boards = None,
    place: options.Place = None,
    lock: Annotated[Path, typer.Option(help="The file of locked figures.")] = Path(LOCK),
    update: Annotated[bool, typer.Option("--update", help="Measure, and write the lock.")] = False,
    prove_again: Annotated[
        bool, typer.Option("--prove-again", help="Prove what the lock only claims, for CI.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Hold models to their budgets and to crtgen.lock.json.

    The lock has digests of the generated code and its figures on each board. If the code is the same,
    nothing is measured; if figures are worse, the layers are named. Models with "proven = true" in
    crtgen.toml are proven; a proof that is only noted in the lock is called claimed. Models with labelled
    data are evaluated on this computer.
    """
    with guarded(as_json, debug) as out:
        if not lock.exists() and not update:
            raise UsageError("there is no lock yet", where=str(lock), hint="crtgen check --update writes it")
        known = read_lock(lock) if lock.exists() else Lock()
        with out.stage() as say:
            jobs = []
            for settings in chosen_models(models, board):
                model = files.load(settings.file)
                quality = _quality(settings, files, say)
                for name, level in _targets(settings, model.name, known, coding.optimize):
                    say(f"{settings.file.name} on {name}")
                    leveled = replace(coding, optimize=level)
                    compiled = leveled.compile_for([model], name, say, place or ())
                    job = _job(settings, compiled, known, update, prove_again, say)
                    jobs.append(replace(job, after=replace(job.after, quality=quality)))
        if update:
            write_lock(lock, known.updated([job.after for job in jobs]))
        worse = [excess for job in jobs for excess in _worse(job, known.tolerance, update)]
        poor = [line for job in jobs for line in _poor(job, update)]
        data = {
            "entries": [
                {
                    "model": j.after.model,
                    "board": j.after.board,
                    "optimize": j.after.optimize,
                    "changed": j.is_new,
                    **({"locked_by": j.locked_by} if j.locked_by else {}),
                    "proven": bool(j.after.proof and not j.claimed and not j.npu)
                    if j.settings.proven
                    else None,
                    **({"proven_but_for_npu": bool(j.after.proof and not j.claimed)} if j.npu else {}),
                    **({"claimed": j.claimed} if j.settings.proven else {}),
                    **j.after.figures,
                    **j.after.quality,
                }
                for j in jobs
            ],
            "worse": [excess.to_dict() for excess in worse],
            "unproven": [f"{j.after.model} on {j.after.board}: {j.unproven}" for j in jobs if j.unproven],
            "poor": poor,
        }
        out.result(data, lambda console: _print(console, jobs, worse, poor, update))
        if worse or poor or data["unproven"]:
            raise typer.Exit(MismatchError.exit_code)


def _targets(settings: ModelSettings, model: str, lock: Lock, optimize: str) -> Sequence[tuple[str, str]]:
    # Boards and levels: those that are named, else those that are locked.
    if settings.boards:
        return [(name, optimize or "balanced") for name in settings.boards]
    found = [(e.board, e.optimize) for e in lock.entries if e.model == model and optimize in ("", e.optimize)]
    if not found:
        raise UsageError(f"nothing is locked for {model}", hint="crtgen check --board B --update locks it")
    return tuple(dict.fromkeys(found))


def _job(
    settings: ModelSettings, compiled: api.Compiled, lock: Lock, update: bool, prove_again: bool, say: api.Say
) -> _Job:
    # A lock stands for a model as long as everything that is generated stays the same.
    name = compiled.modules[0].info.name
    source = source_of(compiled)
    before = lock.find((name, compiled.board.name, compiled.request.optimize), source[1])
    if before is None and not update:
        where = f"{name} on {compiled.board.name}, {compiled.request.optimize}"
        raise UsageError("nothing is locked for it", where=where, hint="crtgen check --update locks it")
    same = before is not None and not update and before.source == source
    after = before if same and before is not None else lock_entry(compiled)
    job = _Job(settings, compiled, before, after)
    return _proven(job, update, prove_again, say) if settings.proven else job


def _proven(job: _Job, update: bool, prove_again: bool, say: api.Say) -> _Job:
    # Prove the image, unless this computer did; a proof that only the lock knows is a claim. The key of a
    # proof is a public digest, so that anybody can write it into a lock. Only the person's own data say that
    # it was proven here.
    compiled, file, after = job.compiled, job.settings.file, job.after
    image = compiled.generate("standalone").build(say=say)
    key = proof_key(image, file, compiled.request.sliding)
    done = replace(job, after=replace(after, proof=key))
    if trust.has_made(own_proof(key)) and not prove_again:
        return done
    if job.before is not None and job.before.proof == key and not (update or prove_again):
        return replace(done, claimed=True)
    say(f"proving {after.model} on {compiled.board.name}")
    proof = prove_built(image, file, compiled.board, compiled.request.sliding)
    if not proof.holds:
        return replace(job, after=replace(after, proof=""), unproven="; ".join(lines_of(proof)))
    trust.made(own_proof(key))
    return done


def _quality(settings: ModelSettings, files: Files, say: api.Say) -> Mapping[str, float]:
    # Quality on labelled data, computed here: boards give the same outputs.
    if settings.data is None:
        return {}
    say(f"evaluating {settings.file.name}")
    names = read_text(settings.labels, "the labels").splitlines() if settings.labels else ()
    return evaluate_here(files.load_network(settings.file), settings.data, say, names).figures


def _poor(job: _Job, update: bool) -> list[str]:
    # Figures that miss their limit or the locked value.
    if not job.after.quality:
        return []
    before = {} if job.before is None or update else job.before.quality
    limits = [limits for limits in (job.settings.quality, before) if limits]
    lines = dict.fromkeys(line for each in limits for line in shortfalls(each, job.after.quality))
    return [f"{job.after.model} on {job.after.board}: {line}" for line in lines]


def _worse(job: _Job, tolerance: float, update: bool) -> list[Excess]:
    found = list(over(job.settings.budget, job.after, job.before))
    if job.before is not None and not update:
        found += compare(job.before, job.after, tolerance)
    return found


def _print(
    console: Console, jobs: Sequence[_Job], worse: Sequence[Excess], poor: Sequence[str], update: bool
) -> None:
    for job in jobs:
        after = job.after
        console.print(f"{after.model} on {after.board}, {after.optimize}: {_change(job, update)}")
        if job.settings.proven:
            console.print(f"  {_proof(job)}")
    for excess in worse:
        console.print(f"\nworse: {excess}")
    for line in poor:
        console.print(f"\nnot good enough: {line}")


def _proof(job: _Job) -> str:
    if job.unproven:
        return f"NOT PROVEN: {job.unproven}"
    if job.claimed:
        return "CLAIMED: the lock says that it is proven, this computer did not prove it; --prove-again does"
    held = job.before is not None and job.before.proof == job.after.proof
    what = "proven but for the layers on the NPU, which are trusted" if job.npu else "proven"
    return f"{what}, by the same proof as it was locked" if held else what


def _change(job: _Job, update: bool) -> str:
    # Differences from the lock.
    if job.before is None:
        return "locked"
    if not job.is_new:
        return "as it was locked"
    pairs = [(m, n, job.after.figures.get(m, n)) for m, n in job.before.figures.items()]
    moved = [f"{m} {a:,} -> {b:,} ({(b - a) / max(a, 1):+.1%})" for m, a, b in pairs if a != b]
    figures = ", ".join(moved) if moved else "the same figures"
    if job.locked_by:
        by = f"locked by another compiler, {job.locked_by}"
        more = "" if update else "; --update adds an entry for this one"
        return f"{by}; {job.after.toolchain} gives {figures}{more}"
    return f"other code, {figures}{'' if update else '; --update locks it'}"
