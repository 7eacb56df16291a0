"""An addition whose other operand a layer makes: that is in scratch until it is added."""

from dataclasses import dataclass

from crtgen.ir import Signature
from crtgen.kernels.kernel import InPlace, Kernel, Target
from crtgen.kernels.parts import CALL, aligned, arguments, assemble, find_part
from crtgen.kernels.registry import design
from crtgen.ops import AddProjection

__all__ = ["ProjectionView"]


@dataclass(frozen=True, slots=True)
class ProjectionView:
    """What the layer makes is of the C type ``type``, the parts' scratch is at the offset ``work``.

    ``arguments`` is what the layer and the addition are given behind their images.
    """

    type: str
    work: int
    arguments: tuple[tuple[str, ...], ...]

    @property
    def works(self) -> bool:
        """Whether a part has scratch of its own."""
        return any("work" in names for names in self.arguments)


@design(AddProjection, weights=None)
def add_projection(op: AddProjection, sig: Signature, target: Target) -> Kernel | None:
    """The layer into scratch, then the addition: by then the layer's image may be written over."""
    if sig.inputs[0].is_constant or sig.inputs[1].is_constant:
        return None
    layer, add = map(find_part, op.stages, op.signatures(sig), (target, target))
    if layer is None or add is None:
        return None
    parts, work = (layer, add), aligned(op.projected.nbytes)
    return assemble(
        f"{add.kernel.design} after {layer.kernel.design}",
        "projection.c.j2",
        ProjectionView(op.projected.dtype.c_name, work, arguments(parts)),
        parts,
        work=work,
        inplace=(InPlace(1),),
        cost=sum(part.kernel.cost + CALL for part in parts),
    )
