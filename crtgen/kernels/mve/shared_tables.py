"""The tables of the functions that layers share where size matters."""

from dataclasses import dataclass, fields

__all__ = ["DenseTable", "MveConvTable", "MveSharedView", "SharedDenseView"]


@dataclass(frozen=True, slots=True)
class MveConvTable:
    """A convolution's numbers: ``struct crt_mve_conv_table`` of ``crt/mve_conv.h``, which explains them."""

    outputs: int
    zero_point: int
    low: int
    high: int
    rounds: int
    first: int
    gathered: int
    images: int
    image_bytes: int
    out_height: int
    out_width: int
    step: int
    stride: int
    dilation: int
    taps: int
    runs: int
    run_bytes: int
    run_step: int
    window_bytes: int
    rows: int
    pitch: int
    ring_bytes: int
    ring_left: int
    fill: int
    copied: int
    span: int
    top: int
    height: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class DenseTable:
    """A fully connected layer's numbers; ``first`` bytes fill the first vector, ``rounds`` more follow."""

    outputs: int
    zero_point: int
    low: int
    high: int
    rounds: int
    first: int
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class MveSharedView:
    """What differs between functions: whether outputs are clamped. All else is in the table."""

    clamped: bool

    @property
    def at(self) -> dict[str, int]:
        """Where in the table each number is, in bytes."""
        return {f.name: 4 * i for i, f in enumerate(fields(MveConvTable))}


@dataclass(frozen=True, slots=True)
class SharedDenseView:
    """Of a fully connected layer the same, with the numbers of its own table."""

    clamped: bool

    @property
    def at(self) -> dict[str, int]:
        """Where in the table each number is, in bytes."""
        return {f.name: 4 * i for i, f in enumerate(fields(DenseTable))}
