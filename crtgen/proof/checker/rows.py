"""Images that take rows: ``<model>_push``, called for one row after the other, computes the network.

The problem. ``<model>_compute`` of such an image pushes all rows at once. A camera's program pushes them as
they come, so all that a row leaves for the next one is between two calls.

The idea. The run begins with a row of another image, which ``<model>_restart`` drops. Then each call gets
one row of symbols, in a buffer of the application's that is no more aligned than its elements are. Between
calls registers and flags become unknown, and the buffer gets other numbers; arena and variables stay. All
calls but the last have to return 0, the last one 1, with the outputs at their places. Variables are 0 before
the first row, as after a start, and have to be 0 again after the last: so the next image finds what the first
one did.

Not followed: several rows in a call (but all of them, as ``<model>_compute`` does).
"""

from collections.abc import Sequence

from crtgen.proof.checker.binary.image import DecodedImage
from crtgen.proof.checker.core.layout import variables
from crtgen.proof.checker.network.layer import Value
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.run import ProofRun
from crtgen.proof.checker.surroundings.places import outer_places

__all__ = ["PushedRun", "takes_rows"]

_DROPPED = 77
"""Element of rows that are no part of the image, and of the buffer once a row has been taken."""


def takes_rows(image: DecodedImage, network: Network, name: str) -> bool:
    """Return True for an image with ``<model>_push`` for rows, of a network without states."""
    return {f"{name}_push", f"{name}_restart"} <= image.symbols.keys() and not network.states


class PushedRun(ProofRun):
    def kept(self) -> list[tuple[int, int]]:
        # The count of rows, and whatever else there is besides the array of a whole image.
        whole = f"{self.name}_image"
        apart = [self.image.span(whole)] if whole in self.image.symbols else []
        return [span for span in variables(self.image, self.name) if span not in apart]

    def _put_inputs(self) -> None:
        pass

    def _call(self) -> None:
        (tensor,), file = self.network.file.inputs, self.network.file
        (buffer,) = outer_places(file, self.machine)["input"]
        values, rows = self.network.fed[tensor], file.shape(tensor)[1]
        size = len(values) // rows
        self._push(buffer, tensor, [_DROPPED] * size, 0)
        self._from_anything("restart")
        for row in range(rows):
            self._push(buffer, tensor, values[row * size : (row + 1) * size], int(row == rows - 1))
        for i in self._kept_words():
            if self.machine.memory.words[i] != 0:
                raise Refusal(f"a variable at {4 * i:#x} is not 0 after the last row")

    def _push(self, buffer: int, tensor: int, row: Sequence[Value], status: int) -> None:
        bits = self.network.file.kind(tensor).bits
        self._put(buffer, tensor, row)
        self._from_anything("push", buffer, 1)
        if self._status() != status:
            raise Refusal(f"a call does not return {status}")
        for i, value in enumerate(row):
            if not self._is(buffer + i * bits // 8, bits, value):
                raise Refusal("a row of the application's is written")
        self._put(buffer, tensor, [_DROPPED] * len(row))
