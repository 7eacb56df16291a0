"""Measures candidates: each image is the whole network, in which every layer that has an untried candidate
uses it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from crtgen import api
from crtgen.api.report import Report
from crtgen.base.errors import BuildError, DeviceFault, DoesNotFitError, MismatchError
from crtgen.lab.tune.choose import Chosen
from crtgen.lab.tune.layers import KernelFigures, TunableLayer

__all__ = ["LEFT_OUT", "Images", "Trial"]

Trial = Callable[[Chosen], tuple[api.Compiled, Report]]
"""Compiles, builds, verifies and profiles a choice."""

# Errors that a candidate may cause; it is then left out.
LEFT_OUT = (BuildError, DoesNotFitError, MismatchError, DeviceFault)


@dataclass(slots=True)
class Images:
    """Figures of candidates by address, from trials of whole networks.

    ``addresses`` has the address of each candidate, by layer; candidates with the same address are measured
    once. ``done`` is called with the measurements of each image. ``failed`` gives the reason for each
    candidate that is left out.
    """

    layers: Sequence[TunableLayer]
    addresses: Mapping[str, Sequence[str]]
    trial: Trial
    done: Callable[[Mapping[str, KernelFigures]], object]
    failed: dict[str, str] = field(default_factory=dict)
    built: int = 0

    def measure(self, wanted: set[str]) -> None:
        left = set(wanted)
        while left:
            image = dict(self._next(left))
            left -= {self.addresses[name][n] for name, n in image.items()}
            self._try(image)

    def count(self, wanted: set[str]) -> int:
        left, count = set(wanted), 0
        while left:
            left -= {self.addresses[name][n] for name, n in self._next(left)}
            count += 1
        return count

    def _next(self, left: set[str]) -> Iterator[tuple[str, int]]:
        # A candidate for each layer of which one is left, no address twice.
        taken: set[str] = set()
        for layer in self.layers:
            for n, address in enumerate(self.addresses[layer.name]):
                if address in left and address not in taken:
                    taken.add(address)
                    yield layer.name, n
                    break

    def _try(self, image: Chosen) -> None:
        # Measure these candidates; if something is wrong, in halves, until it is clear whose fault it is.
        usual = {layer.name: layer.usual for layer in self.layers}
        self.built += 1
        try:
            compiled, report = self.trial({**usual, **image})
        except LEFT_OUT as error:
            items = list(image.items())
            if len(items) == 1:
                ((name, n),) = items
                self.failed[self.addresses[name][n]] = str(error)
                return
            half = len(items) // 2
            self._try(dict(items[:half]))
            self._try(dict(items[half:]))
            return
        known = _figures(compiled, report)
        self.done({self.addresses[name][n]: known[name] for name, n in image.items() if name in known})


def _figures(compiled: api.Compiled, report: Report) -> dict[str, KernelFigures]:
    # Figures of each layer of an image.
    (module,) = compiled.modules
    assert report.image is not None
    sizes = {symbol.name: symbol.size for symbol in report.image.sizes.symbols}
    found = {}
    for info, layer in zip(module.info.layers, report.layers, strict=True):
        figure = layer.instructions if report.cycles is None else layer.ticks
        functions = [name for name in (info.function, *info.parts) if name]
        found[info.name] = KernelFigures(
            figure or 0,
            sum(sizes.get(const, 0) for const in info.consts),
            tuple(sizes.get(name, 0) for name in functions),
        )
    return found
