"""Tune files: kernels for each layer, chosen by measurement instead of estimated costs.

::

    version = 1

    [[model]]
    model = "kws"
    board = "mps2_an386"
    optimize = "speed"
    measured = "instructions"
    untuned = 2_393_811
    tuned = 2_331_004
    layers = [
      { name = "conv2d", digest = "1f0c26b5d1a3", design = "dsp_matrix", variant = "long", figure = 272_101 },
    ]

A file may hold several models, each for several boards and levels. Layers that it does not name are chosen by
cost. On a board whose flash waits, a layer also has the ``memory`` of its constants while it was measured.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.base.toml import TomlTable, load_toml, text
from crtgen.boards.board import FlashReads
from crtgen.compiler.kernels import Kernel, Target
from crtgen.compiler.kernels.engine.variants import candidates, is_coded
from crtgen.network.ir import Graph, Node, Value

__all__ = [
    "CORE",
    "MEASURED",
    "KernelChoice",
    "Tuned",
    "find_tuned",
    "layer_digest",
    "read_tuned",
    "write_tuned",
]

MEASURED = ("instructions", "cycles")
"""Units of measured figures: cycles if the device counts them."""

CORE = "core"
"""The design of a layer that an external code generator would take, but crtgen's kernels compute."""

VERSION = 1
"""Counts the layouts of the file. A file without it is of version 1."""

_HEAD = (
    "# What `crtgen tune` measured and chose; `--tune` of other commands reads it. See docs/tune.md.\n"
    f"version = {VERSION}\n"
)


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A layer, the digest of its shapes and attributes, and its design and variant.

    ``figure`` is its measurement in a run of the model, with its constants in ``memory``, which is empty if
    the core waits for no memory, or if the layer has no constants.
    """

    name: str
    digest: str
    design: str
    variant: str
    figure: int
    memory: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.design, self.variant


@dataclass(frozen=True, slots=True)
class Tuned:
    """The choices for a model on a board at a level; ``untuned`` and ``tuned`` are measurements of a run.

    ``where`` is the file, for errors.
    """

    model: str
    board: str
    optimize: str
    measured: str
    untuned: int
    tuned: int
    layers: tuple[KernelChoice, ...]
    where: str = field(default="", compare=False)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.model, self.board, self.optimize

    @property
    def memories(self) -> dict[str, str]:
        """The memory of each layer's constants while it was measured; empty if none was noted."""
        return {choice.name: choice.memory for choice in self.layers}

    def kernels(
        self, graph: Graph, target: Target, memories: Mapping[str, FlashReads | None]
    ) -> dict[str, Kernel]:
        """Return the kernel of each layer, with its cost for constants in the target's memory.

        ``memories`` has the read timing of each memory of the board. If it is empty, all constants are in one
        memory, and the file's memories are ignored. Raises ``UsageError`` for a layer that differs from the
        tuned one, and for an unknown memory.
        """
        nodes = {node.name: node for node in graph.nodes}
        return {
            choice.name: self._kernel(choice, nodes.get(choice.name), graph, target, memories)
            for choice in self.layers
            if choice.design != CORE
        }

    def on_core(self, graph: Graph) -> frozenset[str]:
        """Return the layers that stay on the core; ``graph`` is the one before external code generators took
        their parts.

        Raises ``UsageError`` for a layer that differs from the tuned one.
        """
        nodes = {node.name: node for node in graph.nodes}
        left = [choice for choice in self.layers if choice.design == CORE]
        for choice in left:
            self._node(choice, nodes.get(choice.name), graph)
        return frozenset(choice.name for choice in left)

    def _node(self, choice: KernelChoice, node: Node | None, graph: Graph) -> Node:
        if node is None:
            raise self._stale(choice, "the model has no such layer")
        if layer_digest(graph, node) != choice.digest:
            raise self._stale(choice, "it has other shapes or attributes than the layer that was tuned")
        return node

    def _kernel(
        self,
        choice: KernelChoice,
        node: Node | None,
        graph: Graph,
        target: Target,
        memories: Mapping[str, FlashReads | None],
    ) -> Kernel:
        node, there = self._node(choice, node, graph), target
        if memories and choice.memory:
            if choice.memory not in memories:
                raise self._stale(choice, f"the board has no memory {choice.memory}")
            there = replace(target, constants=memories[choice.memory])
        for found in candidates(node.op, graph.signature(node), there, is_coded(choice.variant)):
            if found.key == choice.key:
                return found.kernel if there == target else found.kernel.priced(target)
        raise self._stale(choice, f"there is no kernel {choice.design}, {choice.variant}, for it")

    def _stale(self, choice: KernelChoice, message: str) -> UsageError:
        where = f"{self.where}: {self.model}: {choice.name}" if self.where else f"{self.model}: {choice.name}"
        return UsageError(message, where=where, hint="crtgen tune measures the model anew")


def find_tuned(entries: Sequence[Tuned], model: str, board: str, optimize: str) -> Tuned | None:
    return next((entry for entry in entries if entry.key == (model, board, optimize)), None)


def layer_digest(graph: Graph, node: Node) -> str:
    """Return a digest of an operator with its attributes and the shapes and types of its inputs and
    outputs.
    """
    sig = graph.signature(node)
    values = [_described(value) for value in (*sig.inputs, *sig.outputs)]
    content = json.dumps([node.op.name, node.op.attributes(), len(sig.inputs), values])
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _described(value: Value) -> tuple[Any, ...]:
    return *value.shape, value.dtype.value, value.is_constant


def read_tuned(path: Path) -> tuple[Tuned, ...]:
    """Read a tune file. Raises ``UsageError`` naming the key of an error."""
    content = load_toml(path, "the tune file")
    version = content.get("version", _count, 1)
    if version != VERSION:
        newer = f"the tune file is of version {version}, this crtgen reads version {VERSION}"
        raise UsageError(newer, where=str(path), hint="pip install --upgrade crtgen")
    entries = tuple(_entry(path, each) for each in content.tables("model"))
    content.finish()
    keys = [entry.key for entry in entries]
    for key in keys:
        if keys.count(key) > 1:
            raise UsageError(
                f"{', '.join(key)} is there twice", where=str(path), hint="remove one of the two entries"
            )
    return entries


def _entry(path: Path, content: TomlTable) -> Tuned:
    made = Tuned(
        model=content.get("model", text),
        board=content.get("board", text),
        optimize=content.get("optimize", text),
        measured=content.get("measured", text),
        untuned=content.get("untuned", _count),
        tuned=content.get("tuned", _count),
        layers=tuple(map(_choice, content.tables("layers"))),
        where=str(path),
    )
    content.finish()
    return made


def _choice(content: TomlTable) -> KernelChoice:
    name, digest, design, variant = (content.get(k, text) for k in ("name", "digest", "design", "variant"))
    figure, memory = content.get("figure", _count), content.get("memory", text, "")
    made = KernelChoice(name, digest, design, variant, figure, memory)
    content.finish()
    return made


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("expected an integer")
    return value


def write_tuned(path: Path, entries: Sequence[Tuned]) -> None:
    """Write the file; equal entries give equal bytes, in the order of models, boards and levels."""
    blocks = [_block(entry) for entry in sorted(entries, key=lambda entry: entry.key)]
    files.write(path, "\n".join([_HEAD, *blocks]).encode())


def _block(entry: Tuned) -> str:
    names = ("model", "board", "optimize", "measured", "untuned", "tuned")
    head = [f"{name} = {_toml(getattr(entry, name))}" for name in names]
    layers = [_line(dict(_values(choice))) for choice in entry.layers]
    return "\n".join(["[[model]]", *head, "layers = [", *layers, "]", ""])


def _values(choice: KernelChoice) -> Iterator[tuple[str, str | int]]:
    for name in KernelChoice.__slots__:
        if name != "memory" or choice.memory:
            yield name, getattr(choice, name)


def _line(values: Mapping[str, Any]) -> str:
    return f"  {{ {', '.join(f'{name} = {_toml(value)}' for name, value in values.items())} }},"


def _toml(value: str | int) -> str:
    # JSON's texts are TOML's, but for one character.
    if isinstance(value, int):
        return f"{value:_}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
