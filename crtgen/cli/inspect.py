"""``crtgen inspect``: what is in a model, and what crtgen would make of it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from crtgen.cli.groups import Compiling, Files, flattened
from crtgen.cli.output import Debug, Json, guarded, table
from crtgen.codegen.module import Interface, ModelInfo
from crtgen.errors import UsageError
from crtgen.ir import shape_text
from crtgen.library import Module
from crtgen.plan import Plan, Slot, Step, arena_map

__all__ = ["command"]


@flattened
def command(
    model: Annotated[
        Path, typer.Argument(help="A model file, an archive or an exported library.", show_default=False)
    ],
    compiling: Compiling,
    files: Files,
    graph: Annotated[bool, typer.Option("--graph", help="The whole graph, as text.")] = False,
    arena: Annotated[bool, typer.Option("--arena", help="The map of the arena.")] = False,
    modules: Annotated[bool, typer.Option("--modules", help="The tree of modules.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show inputs, outputs, layers with their kernels, weights and arena."""
    with guarded(as_json, debug) as out:
        with out.stage() as say:
            compiled = compiling.compile([files.load(model)], say)
        plan = compiled.plans[0] if compiled.plans else None
        infos = [module.info for module in compiled.modules]
        models = [
            {**_model(info), **(_plan(plan, info) if plan else {}), "modules": _module(tree)}
            for info, tree in zip(infos, compiled.trees, strict=True)
        ]
        if plan is None and (graph or arena):
            raise UsageError("code has no graph and no plan to show", where=str(model))

        def render(console: Console) -> None:
            if plan is not None and graph:
                console.print(str(plan.graph), end="")
            if plan is not None and arena:
                console.print(arena_map(plan), end="")
            for tree in compiled.trees if modules else ():
                _print_module(console, tree)
            for info in infos if not (graph or arena or modules) else ():
                _print(console, info, plan)

        out.result(models[0] if len(models) == 1 else {"models": models}, render)


def _model(info: ModelInfo) -> dict[str, Any]:
    return {
        "model": info.name,
        "inputs": [_interface(i) for i in info.inputs],
        "outputs": [_interface(i) for i in info.outputs],
        "macs": info.macs,
        "weights_bytes": info.weights,
        "arena_bytes": info.arena,
        "arena_lower_bound": info.lower_bound,
        "arena_optimal": info.optimal,
        "layers": [asdict(layer) for layer in info.layers],
    }


def _plan(plan: Plan, info: ModelInfo) -> dict[str, Any]:
    """What only a model of our own has: its graph, and where each value lies."""
    values = plan.graph.values
    return {
        "graph": str(plan.graph),
        "layers": [
            {
                "name": step.node.name,
                "operator": step.node.op.name,
                "kernel": step.kernel.design,
                "inputs": list(step.node.inputs),
                "outputs": list(step.node.outputs),
                "macs": layer.macs,
                "weights_bytes": _weights(plan, step),
                "scratch": _slot(step.scratch),
            }
            for step, layer in zip(plan.steps, info.layers, strict=True)
        ],
        "arena": {
            name: {
                "shape": list(values[name].shape),
                "dtype": values[name].dtype.value,
                **(_slot(slot) or {}),
            }
            for name, slot in plan.slots.items()
        },
    }


def _slot(slot: Slot | None) -> dict[str, int] | None:
    return None if slot is None else {"offset": slot.offset, "bytes": slot.size}


def _weights(plan: Plan, step: Step) -> int:
    """Bytes of a layer's constants as the model has them."""
    values = (plan.graph.values[name] for name in step.node.inputs)
    return sum(value.data.nbytes for value in values if value.data is not None)


def _module(module: Module) -> dict[str, Any]:
    return {
        "name": module.name,
        "kind": module.key,
        "device": str(module.context),
        "functions": list(module.get_func_names()),
        "constants": list(module.get_const_vars()),
        "dso_exportable": module.is_dso_exportable,
        "crt_exportable": module.is_crt_exportable,
        "imports": [_module(m) for m in module.imports],
    }


def _print_module(console: Console, module: Module, depth: int = 0) -> None:
    indent = "  " * depth
    constants = len(module.get_const_vars())
    text = f"{module.name}: {module.key} on {module.context}" + (
        f", {constants} constants" if constants else ""
    )
    console.print(f"{indent}{text}")
    for name in module.get_func_names():
        console.print(f"{indent}  function {name}")
    for imported in module.imports:
        _print_module(console, imported, depth + 1)


def _print(console: Console, info: ModelInfo, plan: Plan | None) -> None:
    if plan is None:
        console.print(info.name)
    for kind, interfaces in (("input", info.inputs), ("output", info.outputs)):
        for i in interfaces:
            quant = f", {i.quant}" if i.quant else ""
            console.print(f"{kind:6} {i.name} {shape_text(i.shape)} {i.dtype.value}{quant}")
    if plan is None:
        rows = table("layer", "function", "kernel")
        for layer in info.layers:
            rows.add_row(layer.name, layer.operator, layer.kernel)
    else:
        numbers = ("MACs", "weights", "scratch")
        rows = table("layer", "operator", "output", "kernel", *numbers, right=numbers)
        for step, layer in zip(plan.steps, info.layers, strict=True):
            node = step.node
            shape = shape_text(plan.graph.values[node.outputs[0]].shape)
            counts = (layer.macs, _weights(plan, step), step.kernel.scratch)
            rows.add_row(node.name, node.op.name, shape, step.kernel.design, *(f"{n:,}" for n in counts))
    console.print(rows)
    bound = "the least possible" if info.optimal else f"at least {info.lower_bound:,} are needed"
    console.print(f"{info.macs:,} MACs, weights {info.weights:,} bytes, arena {info.arena:,} bytes ({bound})")


def _interface(interface: Interface) -> dict[str, Any]:
    quant = interface.quant
    return {
        "name": interface.name,
        "shape": list(interface.shape),
        "dtype": interface.dtype.value,
        "scale": quant.scale if quant and quant.axis is None else None,
        "zero_point": quant.zero_point if quant and quant.axis is None else None,
    }
