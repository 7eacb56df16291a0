"""One kernel for an addition and the layer that computes its second operand, which is kept in scratch."""

from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Part
from crtgen.compiler.kernels.engine.parts import Parts, aligned, arguments, assemble
from crtgen.network.ir import Op, Signature

__all__ = ["ShortcutView", "add_shortcut"]


@dataclass(frozen=True, slots=True)
class ShortcutView:
    """A shortcut: the layer computes an operand of C type ``type``; the parts' scratch is at offset ``work``.

    ``arguments`` are those of the layer and of the addition, after their images.
    """

    type: str
    work: int
    arguments: tuple[tuple[str, ...], ...]

    @property
    def works(self) -> bool:
        return any("work" in names for names in self.arguments)


def add_shortcut(add: Op, sums: Signature, layer: Op, made: Signature, known: Parts) -> Part | None:
    """Join ``add`` of ``sums`` with ``layer``, which computes the second operand; None if one of them has no
    kernel.

    The inputs are the first operand, then those of the layer. The layer's image may be overwritten, since it
    was read before the addition begins.
    """
    parts = [known.find(layer, made), known.find(add, sums)]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    work = aligned(made.y.nbytes)
    kernel = assemble(
        f"{found[1].kernel.design} after {found[0].kernel.design}",
        "shortcut.c.j2",
        ShortcutView(made.y.dtype.c_name, work, arguments(found)),
        found,
        begin=work,
        inplace=(InPlace(1),),
        work=Work(),
    )
    return Part("add_shortcut", Signature((sums.x, *made.inputs), sums.outputs), kernel.priced(known.target))
