"""From a model to its tune file: measures all candidates, chooses, verifies, and measures the result."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from crtgen import api
from crtgen.api.report import Report
from crtgen.base.errors import DoesNotFitError, MismatchError, UsageError
from crtgen.base.resources import code_digest
from crtgen.compiler.byoc import External
from crtgen.compiler.kernels.engine.variants import content_of
from crtgen.compiler.plan import Call, Plan, plan_model
from crtgen.compiler.tuned import CORE, KernelChoice, Tuned, layer_digest
from crtgen.device.run import Site
from crtgen.device.session import Session
from crtgen.lab.measure.benchmark import measure_model, profile_model
from crtgen.lab.measure.cases import ReferenceRun
from crtgen.lab.measure.verification import verify_cases
from crtgen.lab.sweep.address import content_digest, tool_version, toolchain_text, tools_of
from crtgen.lab.sweep.job import Outcome
from crtgen.lab.sweep.store import JobStore, StoreEntry
from crtgen.lab.tune.choose import HINT, Chosen, check_solver, choose, flash_of
from crtgen.lab.tune.images import LEFT_OUT, Images
from crtgen.lab.tune.layers import KernelFigures, TunableLayer, layers_of

__all__ = ["KIND", "Limits", "Result", "Tuning", "tune"]

KIND = "kernel"
"""Kind of these rows in the store."""

# Below this many instructions, a tick is too coarse for a single run of a layer, so the mean of several is
# taken.
_FEW, _RUNS_OF_FEW = 1_000_000, 16

# Attempts to replace a choice that turns out to be too large.
_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the standalone image in bytes; None means as much as without tuning."""

    flash: int | None = None
    ram: int | None = None
    coded: bool = False
    """True if kernels may decode their weights to be small."""

    def allow(self, report: Report) -> bool:
        sizes = (self.flash, report.image_flash_bytes), (self.ram, report.image_ram_bytes)
        return all(limit is None or size is None or size <= limit for limit, size in sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Tuning:
    """A tuning task: ``compile`` compiles the model with given entries of tune files.

    Every image is verified with ``cases`` on the board. Other fields are as in ``measure_model``.
    """

    compile: Callable[[Sequence[Tuned]], api.Compiled]
    cases: Mapping[str, Sequence[ReferenceRun]]
    stack: int | None = None
    toolchain: str | None = None
    site: Site | None = None

    def compiled(self, entries: Sequence[Tuned]) -> api.Compiled:
        """Compile with these entries; arena and constants are in the memories that a server uses."""
        return self.compile(entries).placed("server", stack=self.stack, profile=True)

    def check(self, session: Session) -> None:
        for verdict in verify_cases(session, self.cases):
            if verdict.difference is not None:
                raise MismatchError(f"{verdict.case}: {verdict.difference}", where=verdict.model)

    def measured(self, compiled: api.Compiled) -> Report:
        return measure_model(
            compiled,
            stack=self.stack,
            toolchain=self.toolchain,
            site=self.site,
            check=self.check,
            layers=False,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """Result: ``entry`` is for the tune file; the reports are of the whole network before and after.

    Of all ``candidates``, ``measured`` were measured now, in ``images``; ``failed`` gives the reason for
    those that are left out, by name.
    """

    entry: Tuned
    before: Report
    after: Report
    layers: tuple[TunableLayer, ...]
    candidates: int
    measured: int
    images: int
    failed: Mapping[str, str]


def tune(
    tuning: Tuning, store: JobStore, limits: Limits, say: Callable[[str], None] = lambda text: None
) -> Result:
    """Measure candidates that the store does not know, choose, and verify the choice.

    The result is never slower than without tuning, unless the limits are tighter. Raises ``UsageError`` for a
    board that counts neither instructions nor cycles, ``DoesNotFitError`` if nothing is within the limits.
    """
    check_solver()
    untuned = tuning.compiled(())
    if untuned.board.is_host:
        raise _counts_nothing(untuned.board.name)
    say("measuring the model as it is")
    before = tuning.measured(untuned)
    limits = Limits(
        _or(limits.flash, before.image_flash_bytes),
        _or(limits.ram, before.image_ram_bytes),
        limits.flash is not None,
    )
    on_core, moved = _on_core(tuning, untuned, before, limits, say)
    if on_core:
        untuned = tuning.compiled([_entry(moved, before, on_core)])
    result = _Tuner(tuning, store, say, untuned, moved, limits, on_core).run()
    return replace(result, before=before, entry=replace(result.entry, untuned=total(before)))


def _or(limit: int | None, size: int | None) -> int | None:
    return size if limit is None else limit


def _entry(report: Report, before: Report, layers: Sequence[KernelChoice]) -> Tuned:
    # The entry of a tune file.
    measured = "instructions" if before.cycles is None else "cycles"
    names = before.model, before.board, before.optimize
    return Tuned(*names, measured, total(before), total(report), tuple(layers))


def _on_core(
    tuning: Tuning, untuned: api.Compiled, before: Report, limits: Limits, say: Callable[[str], None]
) -> tuple[tuple[KernelChoice, ...], Report]:
    # Layers that are better computed by the core than by a call of the NPU: each call is tried.
    total(before)
    chosen: tuple[KernelChoice, ...] = ()
    best = before
    for step in untuned.plans[0].steps:
        if step.kernel.estimate is None or not isinstance(step.item, Call):
            continue
        op = step.item.node.op
        assert isinstance(op, External)
        say(f"trying {step.name} on the core")
        layers = (
            *chosen,
            *(KernelChoice(n.name, layer_digest(op.subgraph, n), CORE, "any", 0) for n in op.subgraph.nodes),
        )
        try:
            report = tuning.measured(tuning.compiled([_entry(before, before, layers)]))
        except LEFT_OUT:
            continue
        if total(report) < total(best) and limits.allow(report):
            chosen, best = layers, report
    return chosen, best


def total(report: Report) -> int:
    """Return the figure to minimise: cycles of a run if the device counts them, otherwise instructions.

    A device that counts instructions has no real NPU, so Vela's estimate of the NPU's cycles is added.
    """
    if report.cycles is not None:
        return report.cycles
    if report.instructions is None:
        raise _counts_nothing(report.board)
    return report.instructions + (report.npu["cycles_by_vela"] if report.npu else 0)


def _counts_nothing(board: str) -> UsageError:
    hint = "QEMU counts instructions, bare metal of real boards and rp2040js count cycles"
    return UsageError("the board counts neither instructions nor cycles", where=board, hint=hint)


class _Tuner:
    """One tuning run: the layers, the addresses of their candidates, and the known measurements."""

    def __init__(
        self,
        tuning: Tuning,
        store: JobStore,
        say: Callable[[str], None],
        untuned: api.Compiled,
        before: Report,
        limits: Limits,
        on_core: Sequence[KernelChoice] = (),
    ) -> None:
        self.on_core = on_core
        self.tuning, self.store, self.say, self.untuned, self.before = tuning, store, say, untuned, before
        self.limits = limits
        self.layers = layers_of(untuned, coded=limits.coded)
        self.entries = {layer.name: list(self._entries(layer)) for layer in self.layers}
        self.known: dict[str, KernelFigures] = {}
        self.usual = {layer.name: layer.usual for layer in self.layers}

    def run(self) -> Result:
        addresses = {name: [e.digest for e in entries] for name, entries in self.entries.items()}
        images = Images(self.layers, addresses, self._trial, self._store)
        wanted = self._unknown()
        self.say(f"{len(wanted)} candidates to measure in {images.count(wanted)} images")
        images.measure(wanted)
        chosen, after = self._choose()
        labels = {e.digest: e.label for entries in self.entries.values() for e in entries}
        return Result(
            entry=self._tuned(chosen, after),
            before=self.before,
            after=after,
            layers=self.layers,
            candidates=sum(map(len, self.entries.values())),
            measured=len(wanted),
            images=images.built,
            failed={labels[address]: message for address, message in images.failed.items()},
        )

    def _entries(self, layer: TunableLayer) -> Iterator[StoreEntry]:
        # Row of each candidate. Its address is that of its code, without its weights.
        request = self.untuned.request
        compiler = toolchain_text(
            {tool: tool_version(tool) for tool in tools_of(request.board, self.tuning.toolchain or "", ())}
        )
        place = dict(sorted(request.place.items()))
        settings = json.dumps(
            {
                "flag": request.level.flag,
                "place": place,
                "layer": layer.digest,
                "memory": layer.memory,
            }
        )
        for candidate in layer.candidates:
            source = content_digest(repr(content_of(candidate.kernel)).encode())
            parts = (KIND, source, settings, request.board.name, code_digest(), compiler)
            yield StoreEntry(
                digest=content_digest(json.dumps(parts).encode()),
                kind=KIND,
                model=self.before.model,
                board=request.board.name,
                label=f"{layer.name}: {candidate.design}, {candidate.variant}",
                source=source,
                settings=settings,
                code=code_digest(),
                toolchain=compiler,
            )

    def _unknown(self) -> set[str]:
        # Addresses that the store has no figures of; those that it has are known from now on.
        entries = {entry.digest: entry for listed in self.entries.values() for entry in listed}
        self.info = self.store.begin(f"tune {self.before.model}", list(entries.values()))
        for row in self.store.rows(self.info):
            if row.state == "done":
                self.known[row.digest] = _unpacked(row.figures)
        return set(entries) - set(self.known)

    def _store(self, found: Mapping[str, KernelFigures]) -> None:
        self.known.update(found)
        self.store.finish((address, Outcome(_packed(figures))) for address, figures in found.items())
        total = len({entry.digest for entries in self.entries.values() for entry in entries})
        self.say(f"{len(self.known)} of {total} different candidates are measured")

    def _trial(self, chosen: Chosen) -> tuple[api.Compiled, Report]:
        compiled = self.tuning.compiled([self._tuned(chosen, self.before)])
        self._check_memories(compiled)
        tuning = self.tuning
        report = profile_model(
            compiled,
            stack=tuning.stack,
            toolchain=tuning.toolchain,
            site=tuning.site,
            check=tuning.check,
            runs=_RUNS_OF_FEW if total(self.before) < _FEW else 1,
        )
        return compiled, report

    def _check_memories(self, compiled: api.Compiled) -> None:
        # Raise ``DoesNotFitError`` if constants are not in the memories where they are to be measured.
        places = compiled.resident[0] if compiled.resident else {}
        for layer in self.layers:
            where = places.get(layer.name, compiled.board.code)
            if layer.memory and where != layer.memory:
                raise DoesNotFitError(
                    f"the layer's constants do not fit {layer.memory}", where=layer.name, hint=HINT
                )

    def _tuned(self, chosen: Chosen, after: Report) -> Tuned:
        # The entry of a tune file.
        layers = [*self.on_core]
        for layer in self.layers:
            number = chosen[layer.name]
            candidate, known = layer.candidates[number], self.known.get(self._address(layer, number))
            figure = known.figure if known else 0
            layers.append(KernelChoice(layer.name, layer.digest, *candidate.key, figure, layer.memory))
        return _entry(after, self.before, layers)

    def _address(self, layer: TunableLayer, number: int) -> str:
        return self.entries[layer.name][number].digest

    def _choose(self) -> tuple[Chosen, Report]:
        # The best choice within the limits that the whole confirms; the usual one if none is better.
        flash, ram = self.limits.flash, self.limits.ram
        flash = self._size("flash") if flash is None else flash
        ram = self._size("ram") if ram is None else ram
        fits = self._size("flash") <= flash and self._size("ram") <= ram
        measured = {
            (layer.name, n): self.known[self._address(layer, n)]
            for layer in self.layers
            for n in range(len(layer.candidates))
            if self._address(layer, n) in self.known
        }
        room = flash - self._size("flash") + flash_of(self.layers, measured, self.usual)
        arena = ram - self._size("ram") + _arenas(self.untuned.plans[0])
        never: list[Chosen] = []
        for _ in range(_ROUNDS):
            chosen = choose(self.layers, measured, room, never)
            plan = self._planned(chosen)
            if plan.arena > arena:
                never += self._too_large(chosen, plan, arena)
                continue
            self.say("building and verifying the choice")
            compiled = self.tuning.compiled([self._tuned(chosen, self.before)])
            after = self.tuning.measured(compiled)
            assert after.image_flash_bytes is not None
            assert after.image_ram_bytes is not None
            if after.image_flash_bytes > flash:
                room -= after.image_flash_bytes - flash
            elif after.image_ram_bytes > ram:
                never.append(self._changed(chosen))
            elif fits and total(after) >= total(self.before):
                break
            else:
                return chosen, after
        if not fits:
            raise DoesNotFitError("no choice of kernels that small was found", hint=HINT)
        return self.usual, self.before

    def _size(self, what: str) -> int:
        # Of the untuned image.
        size = self.before.image_flash_bytes if what == "flash" else self.before.image_ram_bytes
        assert size is not None
        return size

    def _changed(self, chosen: Chosen) -> Chosen:
        return {name: n for name, n in chosen.items() if n != self.usual[name]} or chosen

    def _too_large(self, chosen: Chosen, plan: Plan, arena: int) -> list[Chosen]:
        # Choices to exclude from now on: kernels that need too much by themselves, otherwise the whole
        # choice.
        needs = zip(plan.steps, plan.needs, strict=True)
        alone: list[Chosen] = [
            {step.name: chosen[step.name]} for step, n in needs if n > arena and step.name in chosen
        ]
        return alone or [self._changed(chosen)]

    def _planned(self, chosen: Chosen) -> Plan:
        # The plan of a choice, without its code.
        (plan,) = self.untuned.plans
        request = self.untuned.request
        made, _ = plan_model(
            plan.graph,
            request.target,
            keep_inputs=request.keep_inputs,
            fixed={layer.name: layer.candidates[chosen[layer.name]].kernel for layer in self.layers},
            in_place=request.executor == "aot",
        )
        return made


def _arenas(plan: Plan) -> int:
    return plan.arena + sum(part.size for part in plan.parts.values())


def _packed(figures: KernelFigures) -> dict[str, float]:
    code = {f"code {n}": float(size) for n, size in enumerate(figures.code)}
    return {"figure": figures.figure, "constants": figures.constants, **code}


def _unpacked(stored: Mapping[str, float]) -> KernelFigures:
    code = (int(stored[f"code {n}"]) for n in range(len(stored) - 2))
    return KernelFigures(int(stored["figure"]), int(stored["constants"]), tuple(code))
