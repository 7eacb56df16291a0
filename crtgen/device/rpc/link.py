"""A session over a stream: the part of the client that uses a clock."""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from crtgen.base.errors import DeviceFault, LinkTimeoutError, ProtocolError, SessionLostError
from crtgen.device.fault import Fault, FaultReader, Symbols, describe
from crtgen.device.rpc import messages
from crtgen.device.rpc import session as protocol
from crtgen.device.rpc.stream import Stream

__all__ = ["HOST", "SERIAL", "SIMULATOR", "Link", "Timeouts"]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds until Init is repeated, until connecting fails, and until a request without answer fails."""

    retry: float
    start: float
    established: float


SERIAL = Timeouts(2.0, 5.0, 5.0)
SIMULATOR = Timeouts(2.0, 60.0, 60.0)
"""Timeouts for a simulator on this machine, which may be busy; if its process ends, that is noticed at
once.
"""
HOST = Timeouts(1.0, 10.0, 60.0)
"""Timeouts for a process on this machine. Other hosts wait for it without limit; this one does not."""


@dataclass(slots=True)
class _Damage:
    # Damage since the last request: its count, and the last reason.
    count: int = 0
    last: str = ""

    def add(self, why: str) -> None:
        self.count += 1
        self.last = why

    def clear(self) -> None:
        self.count, self.last = 0, ""


class Link:
    """Connects, sends and receives the packets of one session, and passes log lines to ``on_log``."""

    def __init__(
        self,
        stream: Stream,
        timeouts: Timeouts,
        on_log: Callable[[str], None],
        nonce: Callable[[], int] = protocol.random_nonce,
        symbols: Symbols | None = None,
    ) -> None:
        self.timeouts = timeouts
        self._symbols = symbols
        self._faults = FaultReader()
        self._fault: DeviceFault | None = None
        self._stream = stream
        self._on_log = on_log
        self._session = protocol.RpcSession(nonce=nonce)
        self._inbox: deque[bytes] = deque()
        self._damage = _Damage()
        self._lost = ""
        self._used = False

    @property
    def flow_controlled(self) -> bool:
        return self._stream.flow_controlled

    def connect(self) -> None:
        """Begin a new session; an earlier one is over.

        Raises ``LinkTimeoutError`` if nothing answers, ``ProtocolError`` for another protocol version.
        """
        self._forget()
        deadline = time.monotonic() + self.timeouts.start
        while not self._is_established():
            if time.monotonic() >= deadline:
                raise self._timed_out("the device did not accept a session", self.timeouts.start)
            self._session.start()
            self._flush()
            until = min(time.monotonic() + self.timeouts.retry, deadline)
            while not self._is_established() and self._pump(until):
                pass
        self._damage.clear()

    def send(self, payload: bytes, *, again: bool = False) -> None:
        """Send an encoded packet; ``again`` if part of the previous one may have been lost.

        Raises ``SessionLostError`` if the session is over.
        """
        self._check()
        self._used = True
        self._session.send(payload, again=again)
        self._flush()

    def receive(
        self, timeout: float, latest: float = math.inf, *, undamaged: bool = False
    ) -> messages.Packet:
        """Return the next packet of the device, within ``timeout`` seconds and not after ``latest``.

        If it has to be ``undamaged``, a damaged packet ends the wait, too.
        """
        deadline = min(time.monotonic() + timeout, latest)
        damaged = self._damage.count
        is_late = False
        while True:
            while self._inbox:
                packet = messages.decode(self._inbox.popleft())
                if packet is not None:
                    return packet
            self._check()
            if is_late or (undamaged and self._damage.count > damaged):
                raise self._timed_out("the device did not answer", timeout)
            is_late = not self._pump(deadline)

    def drop_unsolicited(self) -> None:
        """Drop everything that arrived before a request, such as a duplicate: it cannot be the answer to that
        request.
        """
        self._pump(time.monotonic())
        self._inbox.clear()
        self._damage.clear()

    def abandon(self, why: str) -> None:
        """Refuse further messages until the next ``connect``, since answers could not be told apart."""
        self._lost = self._lost or why

    def close(self) -> None:
        """End the session. The stream stays open, since the caller owns it."""
        self._session.close()
        self._flush()

    def _forget(self) -> None:
        self._session.close()
        self._session.take_output()
        self._inbox.clear()
        self._damage.clear()
        self._lost = ""
        self._fault = None
        self._used = False

    def _check(self) -> None:
        if self._fault is not None:
            fault, self._fault = self._fault, None
            self.abandon("the device stopped at a fault and started again")
            raise fault
        if self._lost:
            raise SessionLostError(self._lost, hint="connect again")

    def _flush(self) -> None:
        output = self._session.take_output()
        if output:
            self._stream.write(output)

    def _is_established(self) -> bool:
        return self._session.state is protocol.State.ESTABLISHED

    def _pump(self, deadline: float) -> bool:
        # Read once, act on what came, send what that asks for. False once the deadline has passed, even if
        # something came: a device that never pauses is late, too.
        try:
            data = self._stream.read(max(0.0, deadline - time.monotonic()))
        except LinkTimeoutError:
            return False
        events = self._session.receive(data)
        self._flush()
        for event in events:
            self._act(event)
        return time.monotonic() < deadline

    def _act(self, event: protocol.Event) -> None:
        match event:
            case protocol.Message(payload):
                if self._fault is None:
                    self._inbox.append(payload)
            case protocol.LogLine(text):
                self._log(str(text))
            case protocol.Damaged(why):
                self._damage.add(why)
            case protocol.Lost():
                self._lost = "the device ended the session, it may have restarted"
            case protocol.Established():
                self._inbox.clear()
                if self._fault is not None:
                    self._on_log(f"before this session: {self._fault.message}")
                    self._fault = None
                self._lost = "the device began a new session" if self._used else ""
            case protocol.Refused(version):
                raise ProtocolError(
                    f"the device speaks version {version} of the session protocol, not {protocol.VERSION}"
                )

    def _log(self, text: str) -> None:
        # A line for the user, unless it is part of the report of a fault.
        fault = self._faults.take(text)
        if isinstance(fault, Fault):
            self._fault = describe(fault, self._symbols)
        elif not fault:
            self._on_log(text)

    def _timed_out(self, what: str, timeout: float) -> LinkTimeoutError:
        seen = self._damage
        dropped = f"; dropped {seen.count} damaged packets: {seen.last}" if seen.count else ""
        return LinkTimeoutError(
            f"{what} within {timeout:g} s{dropped}",
            hint="check that the firmware runs, the port and its baud rate; a slow device needs more time",
        )
