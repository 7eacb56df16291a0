"""The interface of external code generators: what a package implements to bring its own code.

docs/byoc.md is the guide. A generator is found through the entry point group ``crtgen.codegen``, or passed to
``crtgen.compile``.
"""

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self, TypeAlias

from crtgen.base.errors import UsageError
from crtgen.boards import Board
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Target
from crtgen.compiler.kernels.engine.sources import DeviceContext, SourceLibrary
from crtgen.network.ir import Graph, Op, Signature

__all__ = ["Generated", "Generator", "Pattern"]

Pattern: TypeAlias = tuple[type[Op], ...]
"""A chain of operators, each read only by the next one."""


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """The code of a subgraph.

    ``body`` are the statements of its function. They can use the subgraph's inputs as ``x0``, ``x1`` ..., its
    outputs as ``y0`` ..., each of ``consts`` under its name, ``scratch`` (if it has any), ``apart`` (if it
    has scratch in a separate memory), and ``device`` (if the generator has a device handle). ``support`` is C
    at file scope that all functions of the generator share. ``includes`` are headers, including those of
    ``libraries``. ``inplace`` says which inputs an output may overwrite: see ``InPlace``, whose indices here
    count the subgraph's inputs. With ``fails`` the body returns an ``int32_t``: 0, or the error with which
    the run ends. ``estimate`` is a tool's estimate of the cycles of a run on another device; None if unknown.
    """

    body: str
    consts: tuple[Const, ...] = ()
    scratch: int = 0
    apart: int = 0
    support: str = ""
    includes: tuple[str, ...] = ()
    libraries: tuple[SourceLibrary, ...] = ()
    inplace: tuple[InPlace, ...] = ()
    fails: bool = False
    estimate: int | None = None


class Generator(ABC):
    """A code generator. ``name`` is its name in commands.

    ``patterns`` are tried in order. With ``merges``, adjacent matches become one subgraph. With ``explains``,
    the reasons for layers that it does not take are among the rewrites that users see.

    All code of a generator for a model is one module; ``context`` is the device on which the code runs. A
    generator may be used several times, with different names and devices.
    """

    name: str
    context: DeviceContext = DeviceContext()
    patterns: ClassVar[tuple[Pattern, ...]]
    merges: ClassVar[bool] = False
    explains: ClassVar[bool] = False
    sized: ClassVar[bool] = False
    """True if the size of its code is known before a build: the estimates of ``fit`` know it."""

    @classmethod
    def create(cls, options: Mapping[str, str]) -> Self:
        """Return the generator with the user's options. Raises ``UsageError`` for an unknown option."""
        hint = "leave it out, or look for its name in the generator's documentation"
        cls.refuse_unknown(options, (), hint)
        return cls()

    @classmethod
    def refuse_unknown(cls, options: Iterable[str], known: Iterable[str], hint: str) -> None:
        """Raise ``UsageError`` with this hint unless all options are known."""
        unknown = set(options) - set(known)
        if unknown:
            raise UsageError(f"the code generator {cls.name} has no option {min(unknown)}", hint=hint)

    @property
    def handle(self) -> str:
        """Return the argument ``device`` for generated functions; empty if they need none.

        It is a constant C expression of type ``void *``; the headers and ``support`` declare its names.
        """
        return ""

    def version(self) -> str:
        """Return a text that changes with the version of this generator and of the code that it includes."""
        return hashlib.sha256(Path(inspect.getfile(type(self))).read_bytes()).hexdigest()

    def on_board(self, board: Board, place: Mapping[str, str]) -> "Generator":
        return self

    def runs_on(self, board: Board) -> bool:
        return True

    def prepare(self, graph: Graph) -> None:  # noqa: B027
        """Look at a whole graph, before ``reason`` is asked about individual operators."""

    def reason(self, op: Op, sig: Signature) -> str:
        """Return the reason why an operator of a pattern is not taken; empty if it is. The signature contains
        the constants' data.
        """
        return ""

    def reason_as_a_whole(self, subgraph: Graph) -> str:
        """Return the reason why a subgraph is not taken although each of its operators would be; empty if it
        is taken.
        """
        return ""

    def not_worth(self, subgraph: Graph) -> str:
        """Return the reason why a subgraph is given back after all merging; empty if it is kept."""
        return ""

    def library_for(self, headers: Collection[str], code: str) -> SourceLibrary | None:
        """Return the sources that imported code needs to build; None if they are not this generator's.

        ``code`` is C that includes ``headers``, which its archive does not contain.
        """
        return None

    @abstractmethod
    def generate(self, subgraph: Graph, target: Target) -> Generated:
        """Return the code of a subgraph for a target. Equal subgraphs must give equal code."""
