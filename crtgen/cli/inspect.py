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
from crtgen.plan import Plan, arena_map

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
            {**_model(info), "modules": _module(tree)}
            for info, tree in zip(infos, compiled.trees, strict=True)
        ]
        if plan is None and (graph or arena):
            raise UsageError("code has no graph and no plan to show", where=str(model))

        def render(console: Console) -> None:
            if plan is not None and graph:
                console.print(str(plan.graph), end="")
            elif plan is not None and arena:
                console.print(arena_map(plan))
            elif modules:
                for tree in compiled.trees:
                    _print_module(console, tree)
            else:
                for info in infos:
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
        rows = table("layer", "operator", "output", "kernel", "scratch", right=("scratch",))
        for step in plan.steps:
            node = step.node
            shape = shape_text(plan.graph.values[node.outputs[0]].shape)
            rows.add_row(node.name, node.op.name, shape, step.kernel.design, f"{step.kernel.scratch:,}")
    console.print(rows)
    bound = "optimal" if info.optimal else f"lower bound {info.lower_bound:,}"
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
