"""The products of an output row of a depthwise 3x3 convolution with the DSP extension, and their order.

Six registers hold weights, two the words of a column, up to four the sums; they are identified by index.
"""

from dataclasses import dataclass, replace

from crtgen.compiler.kernels.asm import FAR, NEAR

__all__ = ["Chunk", "Mac", "OutputRow", "OutputStore", "RowBuilder"]

_REACH = 1020  # LDRD's largest offset


@dataclass(frozen=True, slots=True)
class Mac:
    """A multiplication of halfwords, ``op into, data, weight, start``; ``start`` is a sum, too."""

    op: str
    into: int
    data: int
    weight: int
    start: int


@dataclass(frozen=True, slots=True)
class OutputStore:
    """Store of an output: its sum, and its offset from the output pointer, or from the pointer one row
    below.
    """

    sum: int
    at: int
    below: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """Outputs that are computed together: ``columns`` are the offsets of the words to load, each with its
    products.

    Within an iteration, the load at ``data_step`` advances the data pointer, so later offsets count from
    there. The last store, at offset 0, advances the output pointer by ``output_step``. Both are 0 if nothing
    advances.
    """

    columns: tuple[tuple[int, tuple[Mac, ...]], ...]
    stores: tuple[OutputStore, ...]
    data_step: int = 0
    output_step: int = 0

    @property
    def last(self) -> int:
        return max(store.sum for store in self.stores)

    @property
    def below(self) -> bool:
        """True if the row below cannot be reached by an offset."""
        return any(store.below for store in self.stores)


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One or two rows of outputs: ``rounds`` iterations of ``body``, each of which advances both pointers,
    then ``tail``.

    ``repeated`` iterations are unrolled. ``data_step`` and ``output_step`` are the bytes per iteration;
    ``data_next`` and ``output_next`` are the bytes from the end of the loop to the next row.
    """

    rounds: int
    repeated: int
    body: Chunk | None
    tail: tuple[Chunk, ...]
    data_step: int
    output_step: int
    data_next: int
    output_next: int

    @property
    def separate(self) -> bool:
        """True if advancing the output pointer takes a separate instruction."""
        return self.output_step > NEAR

    @property
    def output_bytes(self) -> int:
        return self.rounds * self.output_step


@dataclass(frozen=True, slots=True)
class RowBuilder:
    """Builds rows of outputs from a layer's strides, the bytes of a column and of an output pixel, and the
    output's width.
    """

    stride: tuple[int, int]
    column_bytes: int
    out_width: int
    pixel_bytes: int
    written_out: int
    repeated: tuple[int, ...]

    def row(self, both: bool) -> OutputRow:
        most = 2 if self.stride[0] == 1 else 4
        data = self.stride[1] * self.column_bytes
        reach = ((self.out_width - 1) * self.stride[1] + 2) * self.column_bytes
        whole = self.out_width <= self.written_out and reach <= _REACH
        rounds = 0 if whole else self.out_width // most
        done = rounds * most
        tail = tuple(
            self.chunk(min(most, self.out_width - x), x - done, both)
            for x in range(done, self.out_width, most)
        )
        return OutputRow(
            rounds=rounds,
            repeated=[n for n in self.repeated if rounds % n == 0][-1],
            body=self._body(most, both) if rounds else None,
            tail=tail,
            data_step=most * data,
            output_step=most * self.pixel_bytes,
            data_next=4 - done * data,
            output_next=(self.out_width * (2 if both else 1) - done) * self.pixel_bytes,
        )

    def _body(self, count: int, both: bool) -> Chunk:
        # A chunk that moves both pointers to where the next one begins.
        chunk = self.chunk(count, 0, both)
        data, output = count * self.stride[1] * self.column_bytes, count * self.pixel_bytes
        columns = tuple((at - data if at > data else at, macs) for at, macs in chunk.columns)
        stores = (*chunk.stores[1:], chunk.stores[0])
        return replace(
            chunk,
            columns=columns,
            stores=stores,
            data_step=data,
            output_step=output if output <= NEAR else 0,
        )

    def chunk(self, count: int, at: int, both: bool) -> Chunk:
        """Return the chunk of ``count`` columns of outputs from column ``at`` on."""
        rows = 2 if both else 1
        sums = list(range(count * rows))
        step = self.stride[1]
        started: set[int] = set()
        columns = []
        for column in range((count - 1) * step + 3):
            macs = [
                mac
                for x in range(count)
                if 0 <= column - x * step < 3
                for mac in self._macs(sums[x * rows : x * rows + rows], column - x * step)
            ]
            placed = tuple(self._placed(mac, started, sums[-1]) for mac in macs)
            columns.append(((at * step + column) * self.column_bytes, placed))
        stores = tuple(
            self._store(sums[x * rows + row], (at + x) * self.pixel_bytes, row)
            for x in range(count)
            for row in range(rows)
        )
        return Chunk(tuple(columns), stores)

    def _store(self, total: int, at: int, row: int) -> OutputStore:
        below = at + row * self.out_width * self.pixel_bytes
        return OutputStore(total, below) if below <= FAR else OutputStore(total, at, below=True)

    def _macs(self, into: list[int], tap: int) -> list[tuple[str, int, int, int]]:
        # With strides of 1 weights follow by column, with 2 the pairs come first.
        if self.stride[0] == 2:
            return [("smlad", into[0], 0, tap), ("smlabb", into[0], 1, 3 + tap)]
        upper, lower = 2 * tap, 2 * tap + 1
        first = [("smlad", into[0], 0, upper), ("smlabt", into[0], 1, lower)]
        second = [("smlatb", into[-1], 0, upper), ("smlad", into[-1], 1, lower)]
        return first + second if len(into) == 2 else first

    @staticmethod
    def _placed(mac: tuple[str, int, int, int], started: set[int], start: int) -> Mac:
        # The product, the first one of each sum adding to the start value.
        op, into, data, weight = mac
        origin = into if into in started else start
        started.add(into)
        return Mac(op, into, data, weight, origin)
