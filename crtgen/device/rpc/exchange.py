"""Requests and their answers: several in flight on a reliable line, one at a time on a line that loses bytes.

On a line that loses bytes, a request that may be carried out twice is repeated until it is answered. The
protocol has no sequence numbers, so a second answer would be mistaken for the answer to the next request. A
repeated request is therefore followed by a question that no other answer fits: the CRC-32 of no bytes, with a
random start value. If the device lacks that function, each request is sent once.
"""

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from crtgen.base import endpoints
from crtgen.base.errors import LinkError, LinkTimeoutError, RemoteError
from crtgen.base.text import DeviceText
from crtgen.device.rpc import messages
from crtgen.device.rpc.link import Link
from crtgen.device.rpc.messages import CallFunc, Code, Return, SystemCall
from crtgen.device.rpc.values import Handle, TypeCode

__all__ = ["Exchange"]

_WINDOW_PACKETS = 16
_WINDOW_BYTES = 32768

# Bytes a second that a copy takes at the longest.
_SLOWEST = 250

# Bytes that a request and its answer have besides what they carry.
_FRAMES = 128

# Seconds that a byte is taken to last until an answer has told.
_FIRST = 2e-4

# Seconds that an answer may take at the least.
_LEAST = 0.02


@dataclass(slots=True)
class _Waiting:
    """Unanswered requests: their sizes, the receivers of the replies, and their time limits."""

    take: Callable[[messages.Packet], object]
    timeout: float
    deadline: float
    sizes: "deque[int]" = field(default_factory=deque)
    failures: list[str] = field(default_factory=list)


class Exchange:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._check = 0
        self._per_byte = 0.0
        self._strays = 0

    @property
    def repeats(self) -> bool:
        """True if requests are repeated: the line may lose them, and the device can resume."""
        return self._check != 0

    def connect(self) -> None:
        """Begin a session, repeating the request until its first answer; late answers of another session are
        dropped.
        """
        self._check, self._per_byte = 0, 0.0
        limits = self._link.timeouts
        deadline = time.monotonic() + limits.start
        ask = messages.encode(SystemCall(Code.GET_GLOBAL_FUNC, (endpoints.CRC32.name,)))
        answer = None
        while answer is None:
            self._link.connect()
            if self._link.flow_controlled:
                return
            answer = self._sent(ask, limits.retry, limits.start, deadline)
        if isinstance(answer, Return) and answer.args and isinstance(answer.args[0], Handle):
            self._check = answer.args[0].value

    def ask(
        self,
        packets: Iterable[messages.Packet],
        take: Callable[[messages.Packet], object],
        timeout: float | None = None,
        *,
        nbytes: int = 0,
        again: float | None = None,
    ) -> None:
        """Send requests and pass their replies to ``take``; several are in flight if the transport allows it.

        Each reply has ``timeout`` seconds; all together have that plus the time of ``nbytes`` on a slow line.
        Requests that may be carried out twice are repeated if the line loses bytes: ``again`` is the time in
        seconds that the device may need for one; None forbids a repetition.

        The first ``RemoteError`` is raised once all replies have arrived, so that the next request gets its
        own.
        """
        wait = self._link.timeouts.established if timeout is None else timeout
        waiting = _Waiting(take, wait, time.monotonic() + wait + nbytes / _SLOWEST)
        try:
            self._link.drop_unsolicited()
            if self.repeats and again is not None:
                self._one_by_one(packets, waiting, again)
            else:
                self._in_a_window(packets, waiting)
        except BaseException as error:
            if waiting.sizes or isinstance(error, LinkError):
                self._link.abandon(f"the session was given up: {str(error) or 'interrupted'}")
            raise
        if waiting.failures:
            raise RemoteError(waiting.failures[0], where="device")

    def _in_a_window(self, packets: Iterable[messages.Packet], waiting: _Waiting) -> None:
        for packet in packets:
            payload = messages.encode(packet)
            while waiting.sizes and not self._window_has_room(waiting.sizes, len(payload)):
                self._collect(waiting)
            if waiting.failures:
                break
            waiting.sizes.append(len(payload))
            self._link.send(payload)
        while waiting.sizes:
            self._collect(waiting)

    def _window_has_room(self, waiting: "deque[int]", size: int) -> bool:
        if not self._link.flow_controlled:
            return False
        return len(waiting) < _WINDOW_PACKETS and sum(waiting) + size <= _WINDOW_BYTES

    def _collect(self, waiting: _Waiting) -> None:
        # Take the reply to the oldest request.
        reply = self._link.receive(waiting.timeout, waiting.deadline)
        waiting.sizes.popleft()
        self._give(reply, waiting)

    def _give(self, reply: messages.Packet, waiting: _Waiting) -> None:
        if isinstance(reply, messages.RemoteException):
            waiting.failures.append(str(DeviceText(reply.text)))
        else:
            waiting.take(reply)

    # --- on a line that loses bytes

    def _one_by_one(self, packets: Iterable[messages.Packet], waiting: _Waiting, again: float) -> None:
        for packet in packets:
            waiting.sizes.append(1)
            size = packet.nbytes if isinstance(packet, messages.CopyFromRemote) else 0
            deadline = min(time.monotonic() + waiting.timeout, waiting.deadline)
            reply = self._repeated(messages.encode(packet), size, waiting.timeout, deadline, again)
            waiting.sizes.popleft()
            self._give(reply, waiting)
            if waiting.failures:
                break

    def _repeated(
        self, payload: bytes, size: int, timeout: float, deadline: float, again: float
    ) -> messages.Packet:
        # The answer, of ``size`` bytes, to a request that is sent until it comes.
        nbytes = _FRAMES + len(payload) + size
        wait = min(self._usual(nbytes) + again, timeout / 2)
        start = time.monotonic()
        reply = self._sent(payload, wait, timeout, deadline)
        if reply is not None:
            if not again:
                self._per_byte = max((time.monotonic() - start) / nbytes, 0.9 * self._per_byte)
            return reply
        while reply is None:
            wait = _longer(wait, timeout)
            reply = self._sent(payload, wait, timeout, deadline)
        if self._settle(timeout):  # it was late, not lost
            self._per_byte = min(2 * (self._per_byte or _FIRST), 1 / _SLOWEST)
        return reply

    def _usual(self, nbytes: int) -> float:
        # Seconds after which an answer is late.
        return max(_LEAST, 4 * (self._per_byte or _FIRST) * nbytes)

    def _settle(self, timeout: float) -> bool:
        # Wait until no answer to anything earlier is under way, and whether one was. Answers come in the
        # order of requests.
        before = self._strays
        deadline = time.monotonic() + timeout
        wait = self._usual(_FRAMES)
        answer = None
        while answer is None:
            number = secrets.randbits(32)
            payload = messages.encode(CallFunc(self._check, (0, 0, number)))
            answer = self._sent(payload, wait, timeout, deadline, Return((int(TypeCode.INT), number)))
            wait = _longer(wait, timeout)
        return self._strays > before

    def _sent(
        self,
        payload: bytes,
        wait: float,
        timeout: float,
        deadline: float,
        wanted: messages.Packet | None = None,
    ) -> messages.Packet | None:
        # Send a request once. The answer, ``wanted`` if that is given; None if it is lost, or late. Raises
        # ``LinkTimeoutError``, which names ``timeout``, once the deadline has passed.
        until = min(time.monotonic() + wait, deadline)
        self._link.send(payload, again=True)
        try:
            while True:
                reply = self._link.receive(timeout, until, undamaged=True)
                if wanted is None or reply == wanted:
                    return reply
                self._strays += 1
        except LinkTimeoutError:
            if time.monotonic() >= deadline:
                raise
            return None


def _longer(wait: float, timeout: float) -> float:
    # The next wait for an answer that did not come: the line may be slower than it seemed.
    return max(wait, min(2 * wait, timeout / 8))
