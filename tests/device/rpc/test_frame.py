"""The framing, against the golden vectors and against a decoder that looks at one byte at a time."""

import json
import random
import time
from binascii import crc_hqx
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crtgen.device.rpc.frame import (
    LEAD_IN,
    BadEscape,
    CrcMismatch,
    Decoder,
    Event,
    Oversize,
    Packet,
    ShortPacket,
    encode,
)

VECTORS = [
    (row["name"], bytes.fromhex(row["payload"]), bytes.fromhex(row["wire"]))
    for row in json.loads((Path(__file__).parent / "vectors.json").read_text())
]
GOLDEN = pytest.mark.parametrize(
    ("payload", "wire"), [vector[1:] for vector in VECTORS], ids=[vector[0] for vector in VECTORS]
)
PAYLOADS = st.lists(st.one_of(st.binary(max_size=8), st.just(b"\xff"), st.just(b"\xff\xfd"))).map(b"".join)
NOISE = st.lists(st.sampled_from(list(b"\xff\xff\xff\xfd\xfd\xfe\x00\x00\x01\x05A")), max_size=80).map(bytes)


def end_of_field(position: int, end: int) -> int:
    """Where the length, the payload or the CRC ends that this position is in."""
    return next(edge for edge in (4, end - 2, end) if position < edge)


def judge(plain: bytearray, end: int, expected: int, max_payload: int) -> Event | None:
    """The verdict on what is there of an unescaped packet."""
    if end - 6 > max_payload:
        return Oversize(end - 6)
    if len(plain) < end:
        return None
    received = int.from_bytes(plain[-2:], "little")
    return Packet(bytes(plain[4:-2])) if received == expected else CrcMismatch(expected, received)


def slow_decode(wire: bytes, max_payload: int) -> list[Event]:
    """The format, literally: one byte at a time, no buffer but the packet's."""
    events: list[Event] = []
    inside = escaped = False
    raw, plain, end, crc = bytearray(), bytearray(), 6, 0
    for byte in wire:
        pair, escaped = escaped, byte == 0xFF and not (inside and escaped)
        raw.append(byte)
        if pair and byte == 0xFD:
            if inside:
                events.append(ShortPacket(end_of_field(len(plain), end) - len(plain)))
            inside, raw, plain, end = True, bytearray(b"\xff\xfd"), bytearray(), 6
        elif inside and pair and byte not in (0xFE, 0xFF):
            events.append(BadEscape(byte))
            inside = False
        elif inside and not escaped and not (pair and byte == 0xFE):
            plain.append(byte)
            if len(plain) == 4:
                end = 6 + int.from_bytes(plain, "little")
            if len(plain) == end - 2:
                crc = crc_hqx(raw, 0xFFFF)
            verdict = judge(plain, end, crc, max_payload)
            inside = verdict is None
            events += [verdict] if verdict else []
    return events


def cut(data: bytes, seed: int) -> list[bytes]:
    """The data in pieces of random sizes."""
    chance = random.Random(seed)
    pieces = []
    while data:
        size = chance.randint(1, 7)
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def decode(pieces: list[bytes], **options: int) -> list[Event]:
    decoder = Decoder(**options)
    return [event for piece in pieces for event in decoder.feed(piece)]


@GOLDEN
def test_golden_vectors_encode(payload: bytes, wire: bytes) -> None:
    assert encode(payload) == wire


@GOLDEN
def test_golden_vectors_decode_whole_and_byte_by_byte(payload: bytes, wire: bytes) -> None:
    assert decode([wire]) == [Packet(payload)]
    assert decode([bytes((byte,)) for byte in wire]) == [Packet(payload)]


@given(st.integers())
def test_golden_vectors_decode_in_random_splits(seed: int) -> None:
    wire = b"".join(wire for _, _, wire in VECTORS)
    assert decode(cut(LEAD_IN + wire, seed)) == [Packet(payload) for _, payload, _ in VECTORS]


@given(st.lists(PAYLOADS), st.integers())
def test_any_payloads_survive_any_split(payloads: list[bytes], seed: int) -> None:
    wire = b"".join(map(encode, payloads))
    assert decode(cut(wire, seed)) == [Packet(payload) for payload in payloads]


@given(PAYLOADS)
def test_no_start_sequence_within_a_packet(payload: bytes) -> None:
    body = encode(payload)[2:]
    assert b"\xff\xfd" not in body.replace(b"\xff\xff", b"")


@given(st.lists(st.one_of(NOISE, PAYLOADS.map(encode))).map(b"".join), st.integers())
def test_agrees_with_the_slow_decoder_on_noise(wire: bytes, seed: int) -> None:
    events = decode(cut(wire, seed), max_payload=40)
    assert events == slow_decode(wire, 40)


def test_nops_vanish_but_count_for_the_crc() -> None:
    body = b"\xff\xfd\x02\x00\xff\xfe\x00\x00\xff\xfeA\xff\xfeB"
    crc = crc_hqx(body, 0xFFFF).to_bytes(2, "little").replace(b"\xff", b"\xff\xff")
    assert decode([body + b"\xff\xfe" + crc]) == [Packet(b"AB")]


def test_each_error_is_told_and_harms_nothing() -> None:
    good = encode(b"good")
    wrong = encode(b"evil")[:-1] + b"\x00"
    assert decode([wrong + good])[1:] == [Packet(b"good")]
    assert isinstance(decode([wrong])[0], CrcMismatch)
    assert decode([encode(b"abcdef")[:8] + good]) == [ShortPacket(4), Packet(b"good")]
    assert decode([encode(b"abcdef") + good], max_payload=5) == [Oversize(6), Packet(b"good")]
    assert decode([b"\xff\xfd\x02\x00\x00\x00A\xff\x07B" + good]) == [BadEscape(7), Packet(b"good")]
    assert decode([good + good]) == [Packet(b"good")] * 2


@given(PAYLOADS, PAYLOADS, st.data())
def test_the_packet_after_a_damaged_one_arrives(first: bytes, second: bytes, data: st.DataObject) -> None:
    wire = bytearray(encode(first))
    kind = data.draw(st.sampled_from(["flip", "cut", "double", "insert", "drop"]))
    at = data.draw(st.integers(0, len(wire) - 1))
    if kind == "flip":
        wire[at] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del wire[at:]
    elif kind == "double":
        wire = wire + wire
    elif kind == "insert":
        wire.insert(at, data.draw(st.integers(0, 255)))
    else:
        del wire[at]
    damaged = bytes(wire)
    assert decode([damaged, LEAD_IN, encode(second)])[-1] == Packet(second)
    dangling = len(damaged) - len(damaged.rstrip(b"\xff"))
    assume(dangling % 2 == 0)
    assert decode([damaged, encode(second)])[-1] == Packet(second)


def test_framing_costs_less_than_three_per_cent() -> None:
    payload = random.Random(1).randbytes(2048)
    assert len(encode(payload)) < 1.03 * len(payload)


def test_a_megabyte_in_small_pieces_takes_linear_time() -> None:
    wire = encode(random.Random(2).randbytes(1 << 20))
    start = time.perf_counter()
    events = decode([wire[at : at + 64] for at in range(0, len(wire), 64)])
    assert len(events) == 1
    assert time.perf_counter() - start < 60


def test_noise_outside_of_packets_is_not_kept() -> None:
    decoder = Decoder()
    for _ in range(100):
        assert decoder.feed(bytes(1000) + b"\xff") == []
    assert decoder.feed(b"\xfd" + encode(b"x")[2:]) == [Packet(b"x")]
    assert len(decoder._wire) == 0
