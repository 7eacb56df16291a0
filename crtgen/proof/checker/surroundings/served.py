"""Copies between a host and the tensors of a server's image: CopyToRemote and CopyFromRemote.

The problem. A host sets an input by a packet with an address, a size and bytes, and gets an output by a
packet with an address and a size. If the server stores a byte elsewhere, a right network answers another
question.

The boundary. Bytes of the serial line are framed, escaped, and have a checksum: code that branches on each of
them. Between frames and memory there is one function, ``crt_serve_copy``, which gets the body of a request in
the receive buffer, and calls ``crt_reply_null`` or ``crt_reply_data`` with what is answered. It is followed
from its call to these two, which are replaced: that the line delivers a packet's body, and sends what it is
given, is not looked at, nor that ``crt_serve`` calls it for the codes of these requests.

The idea. The fields of a request are integers, its payload is symbols. For each input the pieces that a host
sends (as large as the receive buffer allows) are followed one after the other, at their offsets, and a first
and a last byte alone: in the end the payload has to be at the tensor, in order, and nothing but the server's
own memory may have been written. For each output the pieces have to be answered with the bytes at its place.
A request for one byte more than a tensor has, at either end, has to be refused, and to write nothing. The
server keeps bits for which inputs were set, and which model used the arena last: each request is followed
with none of its bits set, and with all of them.

``crt_executor_run``, which a request for a run leads to, is followed with a stand-in for ``<model>_compute``:
it is called once, the arena is as it was set, and what it leaves there is still there in the end.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

from crtgen.proof.checker.algebra.value import M32, STACK_TOP, Byte, Symbol, Word, signed, unknown
from crtgen.proof.checker.binary.image import DecodedImage, image_bytes
from crtgen.proof.checker.core.layout import allow_stack
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.refusal import Refusal
from crtgen.proof.checker.surroundings.description import tensor_spans
from crtgen.proof.checker.surroundings.places import BOTH, places, size_of, tensors_of

__all__ = ["follow_copies"]

_COPY = "crt_serve_copy"
_REPLACED = ("crt_reply_null", "crt_reply_data", "crt_fail", "crt_pool_owns")
_RUN = "crt_executor_run"
_NEEDED = (_COPY, _RUN, *_REPLACED, "crt_models", "crt_num_models")
_SERVER, _CURSOR, _RECEIVE = 0xC3000000, 0xC4000000, 0xC5000000
"""Addresses of a server, of the cursor in a request, and of the receive buffer, which no image uses."""
_SERVER_BYTES, _RECEIVE_BYTES = 0x4000, 2048
_PIECE = _RECEIVE_BYTES - 11 - 44 - 8
"""Bytes that a host sends at most in a piece: section 3 of the protocol."""
_BEFORE = 15
"""Bytes of a packet before a request's body: the session's, the length, and the code."""
_CHANGED, _FRAME = (0, 1, 2, 3, 12, 14), 64
_MOST_INSTRUCTIONS = 50_000_000
_PAYLOAD, _HELD, _LEFT = -6, -7, -8
"""Tensors of the symbols that stand for a payload, and for what memory holds before and after a run."""
_CPU = 1


class _HostCopy(NamedTuple):
    # A copy of ``size`` bytes from an offset of a tensor on; ``is_set`` if it goes to the device.
    which: str
    number: int
    offset: int
    size: int
    is_set: bool


def follow_copies(image: DecodedImage, network: Network, name: str) -> frozenset[int]:
    """Follow the copies of a host to each input and from each output, and return the code's addresses; none
    for an image without a server.

    Raises ``Refusal`` for the first copy that moves something else.
    """
    if not image.symbols.keys() >= set(_NEEDED):
        return frozenset()
    copies = _CopiesRun(image, network, name)
    for which in BOTH:
        for k in range(len(tensors_of(network.file, which))):
            copies.follow(which, k)
    copies.follow_run()
    return frozenset(copies.machine.code)


class _CopiesRun:
    def __init__(self, image: DecodedImage, network: Network, name: str) -> None:
        self.image, self.name, self.network, self.file = image, name, network, network.file
        self.models = int.from_bytes(image_bytes(image, image.symbols["crt_num_models"], 2), "little")
        self.at = {which: places(image, network, name, which) for which in BOTH}
        self.machine = Machine(image, _MOST_INSTRUCTIONS)
        allow_stack(self.machine)
        arenas = image.arenas(name).values()
        own = ((_SERVER, _SERVER_BYTES), (_CURSOR, 24), (_RECEIVE, _RECEIVE_BYTES))
        for first, end in (*arenas, *((first, first + size) for first, size in own)):
            self.machine.memory.allow(first, end)
        self.published = list(tensor_spans(image))
        self.held = {a: Symbol(_HELD, a, -128, 127) for low, high in arenas for a in range(low, high)}
        self.answer: tuple[str, int, int] | None = None
        for function in _REPLACED:
            self.machine.instead[image.symbols[function]] = self._answered(function)

    def _answered(self, function: str) -> Callable[[Machine], None]:
        # Stands in for a function that is not followed. The pool owns none of the addresses that are tried.
        def answer(machine: Machine) -> None:
            result = {"crt_fail": machine.r[1], "crt_pool_owns": 0}.get(function, unknown())
            if function == "crt_reply_data":
                address, size = machine.r[1:3]
                if not isinstance(address, int) or not isinstance(size, int):
                    raise Refusal("a reply whose place depends on what is there")
                self.answer = function, address, size
            elif function != "crt_pool_owns":
                self.answer = function, 0, 0
            machine.spoil(_CHANGED, _FRAME)
            machine.r[0] = result

        return answer

    def _bytes_of(self, which: str, k: int) -> int:
        tensor = tensors_of(self.file, which)[k]
        return size_of(self.network, which, tensor) * self.file.kind(tensor).bits // 8

    def follow(self, which: str, k: int) -> None:
        memory, first, size = self.machine.memory, self.at[which][k], self._bytes_of(which, k)
        for request, rest in product(self._requests(which, k, size), (0, M32)):
            for a, symbol in self.held.items():
                memory.store_byte(a, symbol)
            payload = [Symbol(_PAYLOAD, i, -128, 127) for i in range(request.size if request.is_set else 0)]
            self._send(request, payload, rest)
            begin = first + request.offset
            known = dict[int, Byte](self.held)
            is_within = 0 <= request.offset <= request.offset + request.size <= size
            if request.is_set and is_within:
                known |= {begin + i: symbol for i, symbol in enumerate(payload)}
            self._compare(request, known)
            done = ("crt_reply_null", 0, 0) if request.is_set else ("crt_reply_data", begin, request.size)
            status = self.machine.r[0]
            if is_within:
                is_right = status == 0 and self.answer == done
            else:
                is_right = _is_error(status) and self.answer in (None, ("crt_fail", 0, 0))
            if not is_right:
                raise Refusal(
                    f"{self._call_of(request)} is answered by {self.answer}, and ends with {status}"
                )

    def follow_run(self) -> None:
        """Follow what a request for a run calls: the network, once, with the inputs that were set."""
        machine, memory, symbols = self.machine, self.machine.memory, self.image.symbols
        before, after = ({a: Symbol(n, a, -128, 127) for a in self.held} for n in (_HELD, _LEFT))
        calls = list[bool]()

        def computed(_: Machine) -> None:
            calls.append(all(memory.byte(a) is symbol for a, symbol in before.items()))
            for a, symbol in after.items():
                memory.store_byte(a, symbol)
            machine.spoil(_CHANGED, 0)
            machine.r[0] = 0

        machine.instead[symbols[f"{self.name}_compute"]] = computed
        for a, symbol in before.items():
            memory.store_byte(a, symbol)
        self._configure(M32)
        models = [memory.load(symbols["crt_models"] + 4 * i) for i in range(self.models)]
        # server, values, codes, count, index, timing: struct crt_call
        for i, word in enumerate((_SERVER, 0, 0, 0, models.index(symbols[f"{self.name}_model"]), 0)):
            memory.store(_CURSOR + 4 * i, word)
        machine.r[:13] = [_CURSOR, *(unknown() for _ in range(12))]
        machine.run(symbols[_RUN], STACK_TOP)
        if machine.r[0] != 0 or calls != [True]:
            raise Refusal(f"{_RUN} does not call {self.name}_compute once with the inputs that were set")
        if not all(memory.byte(a) is symbol for a, symbol in after.items()):
            raise Refusal(f"{_RUN} changes what {self.name}_compute left")

    def _requests(self, which: str, k: int, size: int) -> Iterator[_HostCopy]:
        for is_set in (True,) if which == "input" else (False,):
            for offset in range(0, size, _PIECE):
                yield _HostCopy(which, k, offset, min(_PIECE, size - offset), is_set)
            for offset in {0, size - 1}:
                yield _HostCopy(which, k, offset, 1, is_set)
            for offset in (-1, size):
                if not self._is_of_a_tensor(self.at[which][k] + offset):
                    yield _HostCopy(which, k, offset, 1, is_set)

    def _is_of_a_tensor(self, address: int) -> bool:
        # Of any model of the image, for example in an arena that models share.
        return any(low <= address < high for low, high in self.published)

    def _call_of(self, request: _HostCopy) -> str:
        verb = "to" if request.is_set else "from"
        place = f"offset {request.offset} of {request.which} {request.number}"
        return f"a copy of {request.size} bytes {verb} {place}"

    def _send(self, request: _HostCopy, payload: list[Symbol], rest: int) -> None:
        # A call of the function with the request's body in the receive buffer.
        memory, machine = self.machine.memory, self.machine
        self._configure(rest)
        at, end = _RECEIVE + _BEFORE, self._put_body(request, payload)
        for place, word in ((0, at), (4, end), (8, 0)):
            memory.store(_CURSOR + place, word)
        machine.r[:13] = [_SERVER, _CURSOR, int(request.is_set), *(unknown() for _ in range(10))]
        machine.forget_flags()
        self.answer = None
        machine.run(self.image.symbols[_COPY], STACK_TOP)

    def _configure(self, rest: int) -> None:
        # The configuration, which comes first in a server: crt/server.h. The last two words say that there is
        # neither code of TVM's nor a slot.
        symbols, memory = self.image.symbols, self.machine.memory
        for i in range(_SERVER >> 2, _SERVER + _SERVER_BYTES >> 2):
            memory.words[i] = rest
        models = symbols["crt_models"], self.models
        words: list[Word] = [unknown(), _RECEIVE, _RECEIVE_BYTES, unknown(), unknown(), *models]
        words += [unknown(), unknown(), symbols.get("crt_params", 0), 0, 0]
        for i, word in enumerate(words):
            memory.store(_SERVER + 4 * i, word)

    def _put_body(self, request: _HostCopy, payload: list[Symbol]) -> int:
        # Tensor and size, and the payload: section 3 of the protocol. Returns the end.
        fields = [
            (self.at[request.which][request.number], 8),
            *((_CPU, 4), (0, 4), (1, 4), (0, 1), (8, 1), (1, 2), (request.size, 8)),
            (request.offset & (1 << 64) - 1, 8),
            (request.size, 8),
        ]
        data: list[Byte] = [b for value, size in fields for b in value.to_bytes(size, "little")]
        for i, byte in enumerate([*data, *payload]):
            self.machine.memory.store_byte(_RECEIVE + _BEFORE + i, byte)
        return _RECEIVE + _BEFORE + len(data) + len(payload)

    def _compare(self, request: _HostCopy, known: dict[int, Byte]) -> None:
        # That memory of the network holds this. A write to anything else than the server's would be refused.
        memory = self.machine.memory
        for a, byte in known.items():
            if memory.byte(a) is not byte:
                raise Refusal(f"{self._call_of(request)} does not leave what it ought to at {a:#x}")


def _is_error(status: Word) -> bool:
    return isinstance(status, int) and signed(status) < 0
