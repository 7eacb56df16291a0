"""Contributions of external code generators to a model: one module each, with a file and entries of its
own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from crtgen.compiler.codegen.arena import Arena
from crtgen.compiler.codegen.module import ExternalModule, LayerInfo
from crtgen.compiler.codegen.names import KERNELS, comment, unique_identifiers
from crtgen.compiler.codegen.views import KernelFileView, KernelView, PackedView
from crtgen.compiler.kernels.engine.kernel import Kernel
from crtgen.compiler.kernels.engine.sources import ModuleOf
from crtgen.compiler.plan import Plan, Step
from crtgen.network.ir import Value

__all__ = ["Externals"]


@dataclass(slots=True, eq=False)
class _Found:
    identifier: str
    kernels: list[tuple[Kernel, KernelView]] = field(default_factory=list)
    layers: list[LayerInfo] = field(default_factory=list)


class Externals:
    """Collects the modules that external code generators made for one model.

    Each subgraph also has an entry in the registry, which computes it on the caller's tensors, with the same
    constants, scratch in the model's arena and device as in a run of the model.
    """

    def __init__(self, plan: Plan, arena: Arena) -> None:
        modules = dict.fromkeys(s.kernel.module for s in plan.steps if s.kernel.module is not None)
        identifiers = unique_identifiers(module.name for module in modules)
        self.arena = arena
        self.model = arena.model
        self.found = {module: _Found(identifiers[module.name]) for module in modules}
        self.entries: list[PackedView] = []

    def device(self, module: ModuleOf | None) -> str:
        if module is None or not module.handle:
            return ""
        return f"{self.model}_{self.found[module].identifier}_device"

    def devices(self) -> tuple[str, ...]:
        return tuple(filter(None, map(self.device, self.found)))

    def function(self, kernel: Kernel, view: KernelView) -> None:
        if kernel.module is not None:
            self.found[kernel.module].kernels.append((kernel, view))

    def layer(self, about: LayerInfo, step: Step, values: Sequence[Value]) -> LayerInfo:
        module = step.kernel.module
        if module is None:
            return about
        found = self.found[module]
        entry = f"tvmgen_{self.model}_{found.identifier}_main_{len(found.layers)}"
        about = replace(about, entry=entry, device=self.device(module))
        found.layers.append(about)
        self.entries.append(PackedView.of(self.arena, entry, about, step, values))
        return about

    def files(self) -> Iterator[KernelFileView]:
        for module, found in self.found.items():
            kernels = [kernel for kernel, _ in found.kernels]
            yield KernelFileView(
                suffix=_suffix(found),
                what=f"of {comment(module.name)} on {comment(str(module.context))}, ",
                kernels=tuple(view for _, view in found.kernels),
                includes=tuple(sorted({i for k in kernels for i in k.includes})),
                support=tuple(dict.fromkeys(k.support for k in kernels if k.support)),
                device=self.device(module),
                handle=module.handle,
            )

    def modules(self) -> tuple[ExternalModule, ...]:
        return tuple(
            ExternalModule(
                name=module.name,
                context=module.context,
                file=self.model + _suffix(found),
                functions=tuple(layer.entry for layer in found.layers),
                consts=tuple(const for layer in found.layers for const in layer.consts),
            )
            for module, found in self.found.items()
        )


def _suffix(found: _Found) -> str:
    return f"_external_{found.identifier}{KERNELS}.c"
