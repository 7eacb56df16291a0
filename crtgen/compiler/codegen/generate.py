"""C code of a planned model."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from crtgen.base.contents import Contents, Maker
from crtgen.boards import HOST, Core
from crtgen.compiler.codegen.arena import Arena
from crtgen.compiler.codegen.control import Subgraph, arenas_within, control_layer
from crtgen.compiler.codegen.demand import core_check
from crtgen.compiler.codegen.external import Externals
from crtgen.compiler.codegen.info import loop_operators, model_info
from crtgen.compiler.codegen.module import (
    CModule,
    Interface,
    LayerInfo,
    ModelInfo,
    Param,
    RegistryFunction,
    SharedFunction,
)
from crtgen.compiler.codegen.names import (
    KERNELS,
    REGISTRY,
    WEIGHTS,
    check_model_name,
    comment,
    param_symbol,
    unique_identifiers,
)
from crtgen.compiler.codegen.pipeline import pipeline_files
from crtgen.compiler.codegen.render import render, render_pieces
from crtgen.compiler.codegen.state import states_of
from crtgen.compiler.codegen.tidy import tidy
from crtgen.compiler.codegen.twins import layers_with_twins, packed_key
from crtgen.compiler.codegen.views import (
    ArrayView,
    FedView,
    KernelFileView,
    KernelView,
    LayerView,
    ModelView,
    TensorView,
    tensor_argument,
)
from crtgen.compiler.kernels.asm import Routine, assembly_file
from crtgen.compiler.kernels.engine.kernel import Const, Kernel
from crtgen.compiler.plan import Branch, Plan, Step, WhileLoop
from crtgen.network.ir import Signature, shape_text
from crtgen.network.pipeline import JoinedPipeline

__all__ = ["RUNTIME_VERSION", "generate_c", "interface_header"]

RUNTIME_VERSION = 1
"""The interface of the runtime that generated code is for: ``CRT_VERSION`` of ``crt/version.h``."""


def generate_c(
    plan: Plan,
    name: str,
    beside: Sequence[CModule] = (),
    core: Core = HOST,
    pipeline: JoinedPipeline | None = None,
) -> CModule:
    """Generate the sources of ``plan`` under ``name``, which prefixes every symbol and file.

    The files are ``<name>.h``, ``.c``, ``_internal.h``, ``_weights.c``, ``_kernels.c``, and
    ``_asm_kernels.S`` with functions in assembly; external code generators have a file each, a ``pipeline``
    has ``_pipeline.h`` and ``.c``. ``_registry.c`` is only for the registry, which gets ``<name>_run``, and
    ``tvmgen_<name>_<generator>_main_<n>`` for each subgraph of a generator. Functions that a module
    ``beside`` it in the image already has are not generated again. Compiling the code for a less capable core
    than ``core`` is an error that names the core. Raises ``UsageError`` unless ``name`` is a C identifier
    that neither the C library nor the runtime uses.
    """
    check_model_name(name)
    generator = _Generator(plan, name, beside, pipeline is not None)
    layers = tuple(generator.views())
    info = model_info(plan, name, generator.infos)
    view = generator.view(info, layers)
    check = core_check(core, name)
    files: dict[str, str | Maker[str]] = {
        f"{name}.h": render("model.h.j2", m=view),
        f"{name}.c": render("model.c.j2", m=view),
        f"{name}{REGISTRY}.c": render("registry.c.j2", m=view),
        f"{name}_internal.h": render("internal.h.j2", m=view, check=check),
        f"{name}{WEIGHTS}.c": partial(render_pieces, "weights.c.j2", m=view),
    }
    usage = render("by_rows_example.c.j2", m=view) if view.fed else ""
    if pipeline is not None:
        around, usage = pipeline_files(pipeline, info, states=bool(view.states))
        files |= around
    if generator.routines:
        title = f"Functions in assembly of {name}, specialised for its layers. Generated: do not edit."
        files[f"{name}_asm{KERNELS}.S"] = assembly_file(title, generator.routines, check)
    files |= {f"{name}{v.suffix}": render("kernels.c.j2", name=name, v=v) for v in generator.kernel_files()}
    pairs = zip(view.arrays, generator.sizes, strict=True)
    params = tuple(Param(i, array.symbol, size) for i, (array, size) in enumerate(pairs))
    libraries = tuple(dict.fromkeys(lib for step in plan.all_steps() for lib in step.kernel.libraries))
    externals = generator.externals.modules()
    signatures = {entry.symbol: entry.signature for entry in generator.externals.entries}
    entries = (
        RegistryFunction(f, f, "external", signatures[f]) for module in externals for f in module.functions
    )
    tensors = tuple(tensor_argument(t.nbytes, t.dtype) for t in (*info.inputs, *info.outputs))
    functions = (RegistryFunction(f"{name}_run", f"{name}_run_packed", "run", tensors), *entries)
    contents = Contents(files)
    return CModule(info, contents, functions, params, libraries, generator.known, externals, usage)


def interface_header(plan: Plan, name: str, digest: bytes) -> str:
    generator = _Generator(plan, name, (), False)
    layers = tuple(generator.views())
    view = generator.view(model_info(plan, name, generator.infos), layers)
    text = ", ".join(f"0x{byte:02x}" for byte in digest)
    return render("slot_interface.h.j2", m=view, digest=text)


class _Generator:
    # Collects the functions and arrays of one model, layer by layer.

    def __init__(self, plan: Plan, name: str, beside: Sequence[CModule], has_pipeline: bool) -> None:
        self.plan = plan
        self.has_pipeline = has_pipeline
        self.name = name
        self.names = unique_identifiers(step.name for step in plan.all_steps())
        self.known: dict[Hashable, SharedFunction] = {}
        for module in beside:
            self.known |= module.kernels
        self.used: dict[str, SharedFunction] = {}
        self.functions: list[tuple[Kernel, KernelView]] = []
        self.routines: list[tuple[str, Routine]] = []
        self.arrays: list[ArrayView] = []
        self.sizes: list[int] = []
        self.infos: list[LayerInfo] = []
        self.arena = Arena.of(name, plan)
        self.externals = Externals(plan, self.arena)
        self.twins = layers_with_twins(plan)
        self.packed: dict[Hashable, str] = {}

    def view(self, info: ModelInfo, layers: tuple[LayerView, ...]) -> ModelView:
        inputs = self.tensors("input", info.inputs, 0)
        outputs = self.tensors("output", info.outputs, len(inputs))
        return ModelView(
            name=self.name,
            macro=self.name.upper(),
            version=RUNTIME_VERSION,
            arena=self.arena.view(),
            keeps_inputs=info.kept_inputs,
            inputs=inputs,
            outputs=outputs,
            arguments=(*inputs, *outputs),
            arrays=tuple(self.arrays),
            prototypes=tuple(function.prototype for function in self.used.values()),
            entries=tuple(self.externals.entries),
            devices=self.externals.devices(),
            layers=layers,
            states=tuple(states_of(self.plan, self.arena)),
            state_bytes=self.plan.state_bytes,
            has_pipeline=self.has_pipeline,
            fed=self.fed(),
            summary=f"{len(layers)} layers, {info.macs:,} MACs, {info.weights:,} bytes of weights and biases",
        )

    def fed(self) -> FedView | None:
        # The input that comes by rows, if it does.
        for name in self.plan.fed:
            value = self.plan.graph.values[name]
            rows, image = value.shape[1], self.arena.value(name)
            return FedView(rows, value.elements // rows, value.dtype.c_name, value.nbytes, image)
        return None

    def tensors(self, role: str, values: Sequence[Interface], first: int) -> tuple[TensorView, ...]:
        # The inputs or outputs; ``first`` is how many arguments come before them.
        return tuple(TensorView.of(self.arena, role, i, first + i, v) for i, v in enumerate(values))

    def kernel_files(self) -> Iterator[KernelFileView]:
        # The functions in C, and those of external code generators, which have a file for each module.
        own = [(k, v) for k, v in self.functions if k.module is None]
        if own:
            yield KernelFileView(
                suffix=f"{KERNELS}.c",
                what="",
                kernels=tuple(v for _, v in own),
                includes=tuple(sorted({i for k, _ in own for i in k.includes})),
                support=tuple(dict.fromkeys(k.support for k, _ in own if k.support)),
            )
        yield from self.externals.files()

    def views(self) -> Iterator[LayerView]:
        # The layers in order; what is known of each goes to ``infos``.
        for index, step in enumerate(self.plan.steps):
            view, about = self._layer(index, step, self.plan, self.arena)
            self.infos.append(about)
            yield view

    def _layer(self, index: int, step: Step, plan: Plan, arena: Arena) -> tuple[LayerView, LayerInfo]:
        if isinstance(step.item, Branch | WhileLoop):
            blocks = tuple(self._block(*inner) for inner in arenas_within(step, arena))
            return control_layer(index, step, plan, arena, blocks)
        return self._call(index, step, plan, arena)

    def _block(self, plan: Plan, arena: Arena) -> Subgraph:
        pairs = [self._layer(index, step, plan, arena) for index, step in enumerate(plan.steps)]
        return Subgraph(plan, arena, tuple(view for view, _ in pairs), tuple(about for _, about in pairs))

    def _call(self, index: int, step: Step, plan: Plan, arena: Arena) -> tuple[LayerView, LayerInfo]:
        # A layer that is a call of one function.
        sig = plan.signature(step)
        macs = plan.macs(step)
        shapes = ", ".join(shape_text(v.shape) for v in sig.inputs if not v.is_constant)
        text = (
            f"step {index + 1}: {step.item.operator} {comment(step.name)}, {step.kernel.design}, {shapes} -> "
        )
        text += f"{shape_text(sig.y.shape)} {sig.y.dtype.value}" + (f", {macs:,} MACs" if macs else "")
        operators = tuple(loop_operators(plan.graph, step))
        cycles = _whole(None if step.kernel.cycles is None else step.kernel.cycles + step.waits)
        about = LayerInfo(
            step.name, step.item.operator, step.kernel.design, macs, operators=operators, cycles=cycles
        )
        if step.kernel.is_alias:
            return LayerView(index, text, ""), about
        symbols = [self._array(step, sig, const) for const in step.kernel.consts]
        function = self._function(step.name, step.item.operator, sig, step.kernel)
        about = replace(about, function=function.symbol, consts=tuple(symbols), parts=function.parts)
        values = [v for v in (*sig.inputs, *sig.outputs) if not v.is_constant]
        places = [f"(void *)({arena.value(v.name)})" for v in values]
        scratch = list(filter(None, (arena.scratch(step), arena.apart(step))))
        rows = []
        if step.kernel.fed:
            places[0], rows = "rows", [f"{self.name}_taken", "count"]
        about = self.externals.layer(about, step, values)
        arguments = [*places, *symbols, *scratch, *rows, *([about.device] if about.device else [])]
        call = f"{function.symbol}({', '.join(arguments)})"
        return LayerView(index, text, _statement(call, step.kernel.fails)), about

    def _array(self, step: Step, sig: Signature, const: Const) -> str:
        layer = step.name
        twin = packed_key(const) if layer in self.twins else None
        if twin in self.packed:
            return self.packed[twin]
        symbol = param_symbol(self.name, self.names[layer], const.name)
        quant = sig.inputs[1].quant if const.name == "weights" and len(sig.inputs) > 1 else None
        text = [f"{const.name} of {layer}", f"{shape_text(const.shape)} {const.dtype}"]
        text += [str(quant)] if quant is not None else []
        text += [const.note] if const.note else []
        text += [f"{const.nbytes:,} bytes"]
        line = comment(", ".join(text))
        self.arrays.append(ArrayView(symbol, const.c_type, const.align, line, const))
        self.sizes.append(const.nbytes)
        if twin is not None:
            self.packed[twin] = symbol
        return symbol

    def _function(self, layer: str, operator: str, sig: Signature, kernel: Kernel) -> SharedFunction:
        # The kernel's function, which layers with equal template, view, parameters and callees share. Those
        # of an external code generator are shared within its module.
        routines = [self._routine(routine) for routine in kernel.ordered_routines]
        if not kernel.template:
            return routines[0]
        called = [self._function(layer, p.operator, p.sig, p.kernel) for p in kernel.parts]
        parts = tuple(function.symbol for function in called)
        called += routines
        parameters = _parameters(sig, kernel)
        module = (self.name, kernel.module) if kernel.module is not None else ()
        symbols = tuple(function.symbol for function in called)
        key = (kernel.template, kernel.view, parameters, symbols, module)
        if key not in self.known:
            symbol = self._symbol(operator)
            prototype = _wrap(f"{'int32_t' if kernel.fails else 'void'} {symbol}({parameters})")
            context: Mapping[str, Any] = {
                "k": kernel.view,
                "name": symbol,
                "prototype": prototype,
                "parts": parts,
                "routines": tuple(routine.symbol for routine in routines),
            }
            source = render(f"kernels/{kernel.template}", **context)
            source = source if module else tidy(source)
            text = f"{operator}, {kernel.design}: first used by {comment(layer)}"
            self.functions.append((kernel, KernelView(text, source)))
            self.externals.function(*self.functions[-1])
            below = dict.fromkeys(s for function in called for s in (function.symbol, *function.parts))
            self.known[key] = SharedFunction(symbol, prototype, tuple(below))
        function = self.known[key]
        return self.used.setdefault(function.symbol, function)

    def _routine(self, routine: Routine) -> SharedFunction:
        # The function in assembly, which all kernels share that have an equal one.
        if routine not in self.known:
            symbol = self._symbol(routine.name)
            self.routines.append((symbol, routine))
            self.known[routine] = SharedFunction(symbol, _wrap(routine.prototype(symbol)), ())
        function = self.known[routine]
        return self.used.setdefault(function.symbol, function)

    def _symbol(self, what: str) -> str:
        return f"{self.name}_{what}_{len(self.functions) + len(self.routines)}"


def _statement(call: str, fails: bool) -> str:
    # The call of a layer. One that can fail ends the run with its error.
    if not fails:
        return _wrap(f"{call};", "    ")
    lines = ["{", _wrap(f"        const int32_t error = {call};", "        "), "        if (error != 0) {"]
    return "\n".join([*lines, "            return error;", "        }", "    }"])


def _whole(cycles: float | None) -> int | None:
    return None if cycles is None else round(cycles)


def _parameters(sig: Signature, kernel: Kernel) -> str:
    inputs = [v for v in sig.inputs if not v.is_constant]
    parts = [f"const {v.dtype.c_name} *x{i}" for i, v in enumerate(inputs)]
    parts += [f"{v.dtype.c_name} *y{i}" for i, v in enumerate(sig.outputs)]
    parts += [f"const {c.c_type} *{c.name}" for c in kernel.consts]
    parts += ["uint8_t *scratch"] if kernel.scratch else []
    parts += ["uint8_t *apart"] if kernel.apart else []
    parts += ["int32_t first", "int32_t count"] if kernel.fed else []
    parts += ["void *device"] if kernel.module is not None and kernel.module.handle else []
    return ", ".join(parts)


def _wrap(statement: str, indent: str = "") -> str:
    # Broken after commas into lines of at most 110 columns; the first one is at ``indent`` already.
    lines = [indent]
    for part in statement.split(", "):
        if lines[-1] != indent and len(lines[-1]) + len(part) > 108:
            lines.append(indent + "    ")
        lines[-1] += part + ", "
    return ",\n".join(line.removesuffix(", ") for line in lines).removeprefix(indent)
