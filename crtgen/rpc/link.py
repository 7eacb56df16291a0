"""A session over a stream: the part of the client that has a clock."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from crtgen.errors import LinkTimeoutError, ProtocolError, SessionLostError
from crtgen.rpc import messages
from crtgen.rpc import session as protocol
from crtgen.rpc.stream import Stream

__all__ = ["HOST", "SERIAL", "SIMULATOR", "Link", "Timeouts"]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: until Init is repeated, until connecting fails, until a request without answer fails."""

    retry: float
    start: float
    established: float


SERIAL = Timeouts(2.0, 5.0, 5.0)
SIMULATOR = Timeouts(2.0, 10.0, 10.0)
HOST = Timeouts(1.0, 10.0, 60.0)
"""For a process on this machine. Other hosts wait for it without end; nothing here does."""


class Link:
    """Sends and receives the packets of one session, connects, and gives log lines to ``on_log``."""

    def __init__(
        self,
        stream: Stream,
        timeouts: Timeouts,
        on_log: Callable[[str], None],
        nonce: Callable[[], int] = protocol.random_nonce,
    ) -> None:
        self.timeouts = timeouts
        self._stream = stream
        self._on_log = on_log
        self._session = protocol.Session(nonce=nonce)
        self._inbox: deque[bytes] = deque()
        self._damage: list[str] = []
        self._lost = ""
        self._used = False

    @property
    def flow_controlled(self) -> bool:
        """Whether several requests may be under way."""
        return self._stream.flow_controlled

    def connect(self) -> None:
        """Begin a new session; an earlier one is over.

        Raises ``LinkTimeoutError`` when nothing answers, ``ProtocolError`` for another protocol version.
        """
        self._forget()
        deadline = time.monotonic() + self.timeouts.start
        while self._session.state is not protocol.State.ESTABLISHED:
            self._session.start()
            self._flush()
            until = min(time.monotonic() + self.timeouts.retry, deadline)
            if not self._wait_established(until) and time.monotonic() >= deadline:
                raise self._timed_out("the device did not accept a session", self.timeouts.start)
        self._damage.clear()

    def send(self, payload: bytes) -> None:
        """Send an encoded packet. Raises ``SessionLostError`` when there is no session any more."""
        self._check()
        self._used = True
        self._session.send(payload)
        self._flush()

    def receive(self, timeout: float) -> messages.Packet:
        """The next packet of the device, at most ``timeout`` seconds from now."""
        deadline = time.monotonic() + timeout
        packet = None
        while packet is None:
            while not self._inbox:
                self._check()
                try:
                    self._pump(deadline)
                except LinkTimeoutError:
                    raise self._timed_out("the device did not answer", timeout) from None
            packet = messages.decode(self._inbox.popleft())
        return packet

    def drop_unsolicited(self) -> None:
        """Before a request: what has arrived until now answers nothing, a duplicate for example."""
        try:
            self._pump(time.monotonic())
        except LinkTimeoutError:
            pass
        finally:
            self._inbox.clear()
            self._damage.clear()

    def abandon(self, why: str) -> None:
        """Refuse further messages until the next ``connect``: answers could no longer be told apart."""
        self._lost = self._lost or why

    def close(self) -> None:
        """End the session. The stream stays open: it belongs to whoever made it."""
        self._session.close()
        self._flush()

    def _forget(self) -> None:
        self._session.close()
        self._session.take_output()
        self._inbox.clear()
        self._damage.clear()
        self._lost = ""
        self._used = False

    def _check(self) -> None:
        if self._lost:
            raise SessionLostError(self._lost, hint="connect again")

    def _flush(self) -> None:
        output = self._session.take_output()
        if output:
            self._stream.write(output)

    def _wait_established(self, deadline: float) -> bool:
        while self._session.state is not protocol.State.ESTABLISHED:
            try:
                self._pump(deadline)
            except LinkTimeoutError:
                return False
        return True

    def _pump(self, deadline: float) -> None:
        """Read once, act on what came, send what that asks for."""
        data = self._stream.read(max(0.0, deadline - time.monotonic()))
        events = self._session.receive(data)
        self._flush()
        for event in events:
            self._act(event)

    def _act(self, event: protocol.Event) -> None:
        match event:
            case protocol.Message(payload):
                self._inbox.append(payload)
            case protocol.Log(text):
                self._on_log(text)
            case protocol.Damaged(why):
                self._damage.append(why)
            case protocol.Lost():
                self._lost = "the device ended the session, it may have restarted"
            case protocol.Established():
                self._inbox.clear()
                self._lost = "the device began a new session" if self._used else ""
            case protocol.Refused(version):
                raise ProtocolError(
                    f"the device speaks version {version} of the session protocol, not {protocol.VERSION}"
                )

    def _timed_out(self, what: str, timeout: float) -> LinkTimeoutError:
        dropped = f"; dropped {len(self._damage)} damaged packets: {self._damage[-1]}" if self._damage else ""
        return LinkTimeoutError(
            f"{what} within {timeout:g} s{dropped}",
            hint="check that the firmware runs, the port and its baud rate; a slow device needs more time",
        )
