"""Sessions on top of the framing, sans-IO and without a clock, for both roles.

Problem
    Host and device talk over a line that loses and damages bytes, and either side may restart at any time.
    A message of an earlier session that arrives late, from a buffer of an adapter for instance, must never be
    taken for one of the current session: the host would take an old answer for the new one.

Idea
    Every message carries a session id, made of a number (*nonce*) from each side. A session starts with three
    messages::

        initiator                         responder
            Terminate             ->                     whatever was before is over
            Init, nonce i         ->
                                  <-      Reply, nonces i and r
            Normal, id i r        <->     Normal, id i r

    Neither side alone can fall back into an old session: the initiator accepts only a Reply with the nonce
    that it has just sent, and the responder has drawn its own nonce anew. Messages with another id are
    dropped.

Invariants
    - ``ESTABLISHED`` means that this side knows both nonces. Only then does it accept or send Normal.
    - ``STARTING`` means that an Init with ``_nonce`` is the last thing that was asked. A new Init never
      repeats one of the last 32 nonces, because a Reply to an earlier one may still be on its way.
    - Log lines belong to no session, so that a device can say why it is not able to start one.

Hard cases, each a row of ``_TRANSITIONS``
    - *Both sides ask at the same time* (``_on_rival_init``): the lower nonce wins, and the other side
      answers. With equal nonces both start over.
    - *An Init was doubled on the line* (``_on_another_reply``): the peer has answered twice, with two nonces,
      and is in the session of its second answer. The first answer looked right, so this side moves on to the
      second one, which carries the same initiator's nonce.
    - *The peer restarted*: it says Terminate at its start, or answers an Init; either ends this session. If
      it says nothing, its messages have the id 0 or an old one, and are dropped until somebody asks again.

There is no clock here: whoever waits for an answer in vain calls ``start`` again.
"""

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import ClassVar

from crtgen.base.errors import SessionLostError
from crtgen.base.text import DeviceText
from crtgen.device.rpc import frame

__all__ = [
    "HEADER_BYTES",
    "VERSION",
    "Damaged",
    "Established",
    "Event",
    "LogLine",
    "Lost",
    "Message",
    "MessageType",
    "Refused",
    "RpcSession",
    "State",
    "next_nonce",
    "random_nonce",
]

VERSION = 1
HEADER_BYTES = 3
# Nonces of the latest Inits, which the next one avoids: ``next_nonce`` has only 64 different values.
_REMEMBERED = 32


class MessageType(IntEnum):
    INIT = 0x00
    REPLY = 0x01
    TERMINATE = 0x02
    LOG = 0x03
    NORMAL = 0x10


class State(Enum):
    CLOSED = "closed"
    STARTING = "starting"
    ESTABLISHED = "established"


@dataclass(frozen=True, slots=True)
class Established:
    session_id: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The peer terminated the session, most likely because it restarted."""


@dataclass(frozen=True, slots=True)
class Refused:
    version: int


@dataclass(frozen=True, slots=True)
class Message:
    payload: bytes


@dataclass(frozen=True, slots=True)
class LogLine:
    text: DeviceText


@dataclass(frozen=True, slots=True)
class Damaged:
    """Bytes were dropped: a damaged packet, or one too short for a header."""

    why: str


Event = Established | Lost | Refused | Message | LogLine | Damaged


def random_nonce() -> int:
    return 1 + secrets.randbelow(255)


def next_nonce(nonce: int) -> int:
    """Return the nonce of the next Init or Reply, never 0. Every version of the protocol computes it so."""
    return (((nonce << 5) | (nonce >> 5)) + 1) % 256 or 1


class RpcSession:
    """One side of a session. Feed it with ``receive``; send what ``take_output`` returns.

    ``nonce`` supplies a random start nonce for each start, 1 to 255.
    """

    def __init__(
        self,
        *,
        nonce: Callable[[], int] = random_nonce,
        max_payload: int = frame.DEFAULT_MAX_PAYLOAD,
    ) -> None:
        self.state = State.CLOSED
        self.session_id = 0
        self._random_nonce = nonce
        self._nonce = nonce()
        self._asked_with: deque[int] = deque(maxlen=_REMEMBERED)
        self._decoder = frame.Decoder(max_payload)
        self._output: list[bytes] = []

    def take_output(self) -> bytes:
        output = b"".join(self._output)
        self._output.clear()
        return output

    def boot(self) -> None:
        """Return the bytes that each side sends at start; they end the session of its predecessor, if any."""
        self._output.append(frame.LEAD_IN)
        self._emit(MessageType.TERMINATE, 0, b"")

    def start(self) -> None:
        """Ask the peer for a session, with a fresh nonce. Call it again if no answer comes in time."""
        self.session_id = 0
        self.boot()
        self._send_init()

    def send(self, payload: bytes, *, again: bool = False) -> None:
        """Send a message; ``again`` if the line may have lost part of the previous one, possibly half an
        escape.

        Raises ``SessionLostError`` if no session is established.
        """
        if self.state is not State.ESTABLISHED:
            raise SessionLostError("there is no session to send in", hint="connect first")
        if again:
            self._output.append(frame.LEAD_IN)
        self._emit(MessageType.NORMAL, self.session_id, payload)

    def log(self, text: str) -> None:
        """Send a line for the peer's log, in any state."""
        self._emit(MessageType.LOG, 0, text.encode())

    def close(self) -> None:
        if self.state is not State.CLOSED:
            self._emit(MessageType.TERMINATE, 0, b"")
        self._reset()

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        for packet in self._decoder.feed(data):
            if not isinstance(packet, frame.Packet):
                events.append(Damaged(str(packet)))
                continue
            event = self._on_packet(packet.payload)
            if event is not None:
                events.append(event)
        return events

    def _emit(self, kind: MessageType, session_id: int, body: bytes) -> None:
        header = session_id.to_bytes(2, "little") + bytes((kind,))
        self._output.append(frame.encode(header + body))

    def _send_init(self) -> None:
        # Ask with a nonce that no late Reply can carry.
        self._nonce = next_nonce(self._random_nonce())
        while self._nonce in self._asked_with:
            self._nonce = self._nonce % 255 + 1
        self._asked_with.append(self._nonce)
        self.state = State.STARTING
        self._emit(MessageType.INIT, self._nonce, bytes((VERSION,)))

    def _reset(self) -> None:
        self.state = State.CLOSED
        self.session_id = 0

    def _on_packet(self, packet: bytes) -> Event | None:
        if len(packet) < HEADER_BYTES:
            return Damaged(f"message of {len(packet)} bytes")
        handler = self._TRANSITIONS.get((self.state, packet[2]))
        if handler is None:
            return None
        return handler(self, int.from_bytes(packet[:2], "little"), packet[HEADER_BYTES:])

    def _on_init(self, session_id: int, body: bytes) -> Event | None:
        # Become the responder of a new session.
        initiator = session_id & 0xFF
        if initiator == 0 or len(body) != 1:
            return None
        if body[0] != VERSION:
            return Refused(body[0])
        self._nonce = next_nonce(self._nonce)
        self.session_id = initiator | self._nonce << 8
        self.state = State.ESTABLISHED
        self._emit(MessageType.REPLY, self.session_id, bytes((VERSION,)))
        return Established(self.session_id)

    def _on_rival_init(self, session_id: int, body: bytes) -> Event | None:
        # Both sides asked: the lower nonce wins, equal ones start over.
        rival = session_id & 0xFF
        if rival < self._nonce:
            return self._on_init(session_id, body)
        if rival == self._nonce:
            self._send_init()
        return None

    def _on_reply(self, session_id: int, body: bytes) -> Event | None:
        # The answer to our Init, unless it answers an earlier one.
        initiator, responder = session_id & 0xFF, session_id >> 8
        if initiator != self._nonce or responder == 0 or len(body) != 1:
            return None
        if body[0] != VERSION:
            self._reset()
            return Refused(body[0])
        self.session_id = session_id
        self.state = State.ESTABLISHED
        return Established(session_id)

    def _on_another_reply(self, session_id: int, body: bytes) -> Event | None:
        # Our Init arrived twice: the peer is in the session of its latest Reply.
        ours = session_id & 0xFF == self.session_id & 0xFF == self._nonce
        return self._on_reply(session_id, body) if ours and session_id != self.session_id else None

    def _on_terminate(self, session_id: int, body: bytes) -> Event:
        self._reset()
        return Lost()

    def _on_normal(self, session_id: int, body: bytes) -> Event | None:
        return Message(body) if session_id == self.session_id else None

    def _on_log(self, session_id: int, body: bytes) -> Event | None:
        if session_id not in (0, self.session_id):
            return None
        return LogLine(DeviceText.of_bytes(body))

    _TRANSITIONS: ClassVar[dict[tuple[State, int], Callable[["RpcSession", int, bytes], Event | None]]] = {
        (State.CLOSED, MessageType.INIT): _on_init,
        (State.CLOSED, MessageType.LOG): _on_log,
        (State.STARTING, MessageType.INIT): _on_rival_init,
        (State.STARTING, MessageType.REPLY): _on_reply,
        (State.STARTING, MessageType.LOG): _on_log,
        (State.ESTABLISHED, MessageType.INIT): _on_init,
        (State.ESTABLISHED, MessageType.REPLY): _on_another_reply,
        (State.ESTABLISHED, MessageType.TERMINATE): _on_terminate,
        (State.ESTABLISHED, MessageType.NORMAL): _on_normal,
        (State.ESTABLISHED, MessageType.LOG): _on_log,
    }
    """State transitions. Events without an entry are ignored, such as a Terminate without a session."""
