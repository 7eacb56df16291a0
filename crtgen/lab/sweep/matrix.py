"""``sweep.toml``: models, boards and options, and which of their combinations are jobs.

::

    models = ["kws.tflite", "vision/*.onnx"]   # without them, those of crtgen.toml
    boards = ["mps2_an386", "mps3_an547"]      # the same
    optimize = ["speed", "size"]               # every option is a list of its values
    place = [[], ["arena=dtcm"]]
    cases = 4                                  # random inputs that each job verifies
    push = "ram"                               # real boards keep their firmware: models go into this slot

    [[exclude]]                                # jobs of which every key is one of these
    models = ["kws*"]
    optimize = ["size"]

    [[include]]                                # one more matrix, with models and boards as above
    boards = ["rpi_pico"]
    models = ["kws.tflite"]
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from glob import glob, has_magic
from itertools import product
from pathlib import Path
from typing import Any

from crtgen.base import files, trust
from crtgen.base.errors import UsageError
from crtgen.base.toml import TomlTable, load_toml, text, yes_or_no
from crtgen.boards import Board, find_board, is_own
from crtgen.compiler.byoc import generator_names
from crtgen.compiler.level import LEVELS
from crtgen.compiler.request import EXECUTORS, FEEDS
from crtgen.firmware.builder import TOOLCHAINS
from crtgen.lab.settings import Settings, read_settings, trust_of
from crtgen.lab.sweep.address import content_digest
from crtgen.lab.sweep.job import Job, JobOptions

__all__ = ["SWEEP", "Sweep", "asks_of_sweep", "read_sweep"]

SWEEP = "sweep.toml"

Values = Mapping[str, tuple[Any, ...]]
"""Values of each named axis."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """All jobs of a file without duplicates, and the contents of the files that they need, by digest."""

    path: Path
    jobs: tuple[Job, ...]
    contents: Mapping[str, bytes]


def read_sweep(path: Path) -> Sweep:
    """Return the jobs of a ``sweep.toml``; without one, all models of ``crtgen.toml`` on their boards.

    Raises ``UsageError`` naming file and key.
    """
    settings = read_settings(path.parent)
    alone = not path.exists() and settings is not None
    content = TomlTable(path, "", {}, "") if alone else load_toml(path, "the sweep")
    base = _axes(content)
    cases, stack = content.get("cases", _count, 4), content.get("stack", _count, None)
    simulate, push = content.get("simulate", yes_or_no, False), content.get("push", text, "")
    includes, excludes = ([(rule, _rule(rule)) for rule in content.tables(key)] for key in _RULES)
    content.finish()
    trust.require(path, content.digest, _asks([base, *(axes for _, axes in includes)]))
    reader = _MatrixReader(path.parent, settings)
    jobs = dict.fromkeys(reader.jobs(base, content))
    what = {axis: values for axis, values in base.items() if axis in _WHAT}
    for rule, axes in includes:
        jobs |= dict.fromkeys(reader.jobs({**what, **axes}, rule))
    for rule, axes in excludes:
        jobs = _without(jobs, axes, rule)
    if not jobs:
        raise UsageError("no job is left", where=str(path), hint="exclude less")
    made = tuple(replace(job, cases=cases, stack=stack, simulate=simulate, push=push) for job in jobs)
    return Sweep(path, made, reader.contents)


def asks_of_sweep(path: Path) -> tuple[tuple[str, ...], str]:
    """Return the permissions that a sweep needs apart from measuring, and the digest of its content."""
    content = load_toml(path, "the sweep")
    rules = [_rule(rule) for key in _RULES for rule in content.tables(key)]
    return _asks([_axes(content), *rules]), content.digest


def _asks(matrices: Sequence[Values]) -> tuple[str, ...]:
    # Options of code generators may name C that is compiled and run.
    generators = (name for axes in matrices for names in axes.get("codegen", ()) for name in names)
    given = dict.fromkeys(name for name in generators if ":" in name)
    return tuple(f"gives the code generator options: {name}" for name in given)


_WHAT = ("models", "boards")
_RULES = ("include", "exclude")
_OPTIONS = tuple(field.name for field in fields(JobOptions))


def _axes(table: TomlTable) -> dict[str, tuple[Any, ...]]:
    # The values of every axis that the table names.
    found = {axis: table.get(axis, _list_of(parse), None) for axis, parse in _AXES.items()}
    return {axis: values for axis, values in found.items() if values is not None}


def _rule(table: TomlTable) -> dict[str, tuple[Any, ...]]:
    axes = _axes(table)
    table.finish()
    return axes


class _MatrixReader:
    def __init__(self, folder: Path, settings: Settings | None) -> None:
        self.contents: dict[str, bytes] = {}
        self._folder = folder
        self._settings = settings
        self._digests: dict[Path, str] = {}

    def jobs(self, axes: Values, table: TomlTable) -> Iterator[Job]:
        # The product of the axes; model by model, so that what a worker knows of one serves the next.
        models = self._models(axes, table)
        boards = self._boards(axes, table)
        known = {axis: axes[axis] for axis in _OPTIONS if axis in axes}
        options = [JobOptions(**dict(zip(known, values, strict=True))) for values in product(*known.values())]
        for (model, expect), board, chosen in product(models, boards, options):
            own = self._read(board.file, "the board") if board.file and is_own(board) else ""
            yield Job(
                model=model.name,
                source=self._read(model, "the model"),
                board=board.name,
                options=chosen,
                expect=self._read(expect, "the cases") if expect else "",
                own_board=own,
                trust=trust_of(model),
            )

    def _models(self, axes: Values, table: TomlTable) -> Sequence[tuple[Path, Path | None]]:
        listed = {model.file: model.expect for model in (self._settings.models if self._settings else ())}
        if "models" not in axes:
            if not listed:
                raise table.error("models", "no model is named, here or in crtgen.toml")
            return list(listed.items())
        found: dict[str, Path] = {}
        for pattern in axes["models"]:
            named = str(self._folder / pattern)
            paths = list(map(Path, sorted(glob(named)))) if has_magic(pattern) else [Path(named)]
            if not paths:
                raise table.error("models", f"no file is called like {pattern}")
            for path in paths:
                if found.setdefault(path.name, path) != path:
                    raise table.error("models", f"two files are called {path.name}: rename one")
        return [(path, listed.get(path)) for path in found.values()]

    def _boards(self, axes: Values, table: TomlTable) -> list[Board]:
        names = axes.get("boards", self._settings.boards if self._settings else ())
        if not names:
            raise table.error("boards", "no board is named, here or in crtgen.toml")
        boards = (find_board(str(self._folder / n) if n.endswith(".toml") else n) for n in names)
        return list({board.name: board for board in boards}.values())

    def _read(self, path: Path, what: str) -> str:
        # The digest of a file, whose content is kept.
        if path not in self._digests:
            data = files.read(path, what)
            self._digests[path] = content_digest(data)
            self.contents[self._digests[path]] = data
        return self._digests[path]


def _without(jobs: Mapping[Job, None], axes: Values, table: TomlTable) -> dict[Job, None]:
    # Applies a rule. A rule that removes no job, or all of them, is an error.
    if not axes:
        raise table.error("", "a rule that excludes everything")
    for axis, wanted in axes.items():
        there = sorted({str(_value(job, axis)) for job in jobs})
        for value in wanted:
            if not any(_is_like(_value(job, axis), value) for job in jobs):
                close = get_close_matches(str(value), there, n=1)
                error = table.error(axis, f"no job has {value}")
                error.hint = f"did you mean {close[0]}?" if close else f"there is {', '.join(there)}"
                raise error
    return {job: None for job in jobs if not all(_fits(job, axis, axes[axis]) for axis in axes)}


def _fits(job: Job, axis: str, wanted: Sequence[Any]) -> bool:
    return any(_is_like(_value(job, axis), value) for value in wanted)


def _value(job: Job, axis: str) -> Any:
    return {"models": job.model, "boards": job.board}.get(axis) or getattr(job.options, axis)


def _is_like(actual: Any, wanted: Any) -> bool:
    # Names may be patterns, everything else is equal or not.
    if isinstance(wanted, str):
        return fnmatchcase(str(actual), Path(wanted).name)
    return bool(actual == wanted)


def _list_of(parse: Any) -> Any:
    def parsed(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            raise ValueError("expected a list of values, one of them at least")
        return tuple(dict.fromkeys(map(parse, value)))

    return parsed


def _one_of(names: Sequence[str]) -> Any:
    def parsed(value: Any) -> str:
        if value not in names:
            close = get_close_matches(str(value), names, n=1)
            raise ValueError(
                f"{value!r} is unknown; "
                + (f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}")
            )
        return str(value)

    return parsed


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("each value is a list of texts, which may be empty")
    return tuple(map(text, value))


def _places(value: Any) -> tuple[str, ...]:
    pairs = _texts(value)
    for pair in pairs:
        part, _, memory = pair.partition("=")
        if not part or not memory:
            raise ValueError(f"{pair!r} is not of the form PART=MEMORY, as in arena=dtcm")
    return pairs


def _generators(value: Any) -> tuple[str, ...]:
    names = _texts(value)
    known = _one_of(generator_names())
    for name in names:
        known(name.partition(":")[0])
    return names


def _cores(value: Any) -> int:
    if value not in (1, 2) or isinstance(value, bool):
        raise ValueError(f"{value!r} cores; known: 1, 2")
    return int(value)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("expected an integer")
    return value


_AXES: Mapping[str, Any] = {
    "models": text,
    "boards": text,
    "optimize": _one_of(tuple(LEVELS)),
    "executor": _one_of(EXECUTORS),
    "fold": yes_or_no,
    "codegen": _generators,
    "fallback": yes_or_no,
    "place": _places,
    "toolchain": _one_of(tuple(TOOLCHAINS)),
    "cores": _cores,
    "feed": _one_of(("", *FEEDS)),
}
