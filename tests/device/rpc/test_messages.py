"""RPC packets and values, against the capture and against bytes written out here."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtgen.base.errors import ProtocolError, UsageError
from crtgen.device.rpc import messages
from crtgen.device.rpc.messages import (
    CallFunc,
    Code,
    CopyAck,
    CopyFromRemote,
    CopyToRemote,
    InitServer,
    Packet,
    RemoteException,
    Return,
    Shutdown,
    SystemCall,
)
from crtgen.device.rpc.values import DataType, Device, Handle, Tensor, TypeCode, Value
from tests.device.rpc import capture

UINT8, INT8 = DataType(1, 8), DataType(0, 8)
U64 = st.integers(0, (1 << 64) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
DTYPES = st.builds(DataType, st.integers(0, 255), st.integers(0, 255), st.integers(0, 65535))
DEVICES = st.builds(Device, I32, I32)
TENSORS = st.builds(
    Tensor, U64, st.lists(st.integers(0, (1 << 63) - 1), max_size=6).map(tuple), DTYPES, DEVICES, U64
)
VALUES: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    DTYPES,
    DEVICES,
    TENSORS,
    st.builds(Handle, U64, st.sampled_from([TypeCode.HANDLE, TypeCode.MODULE, TypeCode.FUNCTION])),
)
ARGS = st.lists(VALUES, max_size=5).map(tuple)
PACKETS: st.SearchStrategy[Packet] = st.one_of(
    st.just(Shutdown()),
    st.builds(InitServer, st.text(), ARGS),
    st.builds(CallFunc, U64, ARGS),
    st.builds(Return, ARGS),
    st.builds(RemoteException, st.text()),
    st.builds(CopyFromRemote, TENSORS, U64),
    st.builds(CopyToRemote, TENSORS, st.binary()),
    st.builds(CopyAck, st.binary()),
    st.builds(SystemCall, st.sampled_from([code for code in Code if code >= 9]), ARGS),
)


def captured(who: str) -> list[bytes]:
    return [
        payload[3:]
        for speaker, payloads in capture.lines()
        for payload in payloads
        if speaker == who and payload[2] == 0x10
    ]


@pytest.mark.parametrize("who", ["host", "device"])
def test_every_captured_packet_decodes_and_encodes_to_the_same_bytes(who: str) -> None:
    payloads = captured(who)
    assert len(payloads) == 55
    for payload in payloads:
        packet = messages.decode(payload)
        assert packet is not None
        assert messages.encode(packet) == payload


def test_the_captured_host_says_what_it_means() -> None:
    requests = [messages.decode(payload) for payload in captured("host")]
    big = Tensor(0x558086170780, (3000,), UINT8)
    pattern = bytes(index % 256 for index in range(3000))
    rest = Tensor(big.data, big.shape, UINT8, Device(1, 0), 1985)
    assert requests[:13] == [
        SystemCall(Code.GET_GLOBAL_FUNC, ("tvm.rpc.server.GetCRTMaxPacketSize",)),
        CallFunc(0x80028003),
        SystemCall(Code.ALLOC_DATA_WITH_SCOPE, (Tensor(0, (3000,), UINT8), None)),
        SystemCall(Code.GET_GLOBAL_FUNC, ("tvm.rpc.server.GetCRTMaxPacketSize",)),
        CallFunc(0x80028003),
        CopyToRemote(big, pattern[:1985]),
        CopyToRemote(rest, pattern[1985:]),
        SystemCall(Code.STREAM_SYNC, (Device(1, 0), Handle(0))),
        CopyFromRemote(big, 1985),
        CopyFromRemote(rest, 1015),
        SystemCall(Code.STREAM_SYNC, (Device(1, 0), Handle(0))),
        SystemCall(Code.FREE_DATA, (Device(1, 0), Handle(big.data))),
        SystemCall(Code.GET_GLOBAL_FUNC, ("runtime.SystemLib",)),
    ]
    module = Handle(0x8000, TypeCode.MODULE)
    assert CallFunc(0x80028005, (module, Device(1, 0), "default")) in requests
    assert CallFunc(0x80028001, (Handle(0x8001, TypeCode.MODULE), "set_input", 1)) in requests
    assert SystemCall(Code.FREE_HANDLE, (Handle(0x8001), TypeCode.MODULE)) in requests


def test_the_captured_device_says_what_it_means() -> None:
    replies = [messages.decode(payload) for payload in captured("device")]
    input_tensor = Tensor(0x558086171580, (1, 49, 10, 1), INT8)
    assert replies[:3] == [
        Return((Handle(0x80028003),)),
        Return((0, 2037)),
        Return((Handle(0x558086170780),)),
    ]
    assert replies[5] == Return((None,))
    assert replies[8] == CopyAck(bytes(index % 256 for index in range(1985)))
    assert Return((TypeCode.NDARRAY, input_tensor, Handle(0x558086171380))) in replies
    assert CopyAck(bytes.fromhex("808080808080808080698097")) in replies


@given(PACKETS)
def test_packets_survive(packet: Packet) -> None:
    assert messages.decode(messages.encode(packet)) == packet


@given(st.binary(max_size=200), st.sampled_from(list(Code)))
def test_noise_is_a_packet_or_a_protocol_error(body: bytes, code: Code) -> None:
    for payload in (body, (len(body) + 4).to_bytes(8, "little") + code.to_bytes(4, "little") + body):
        with suppress(ProtocolError):
            packet = messages.decode(payload)
            assert packet is None or messages.decode(messages.encode(packet)) is not None


@given(PACKETS, st.data())
def test_a_truncated_packet_is_a_protocol_error(packet: Packet, data: st.DataObject) -> None:
    wire = messages.encode(packet)
    short = wire[: data.draw(st.integers(0, len(wire) - 1))]
    with pytest.raises(ProtocolError):
        messages.decode(short)
    body = short[8:]
    if len(body) >= 4 and not isinstance(packet, CopyAck):
        with pytest.raises(ProtocolError):
            messages.decode(len(body).to_bytes(8, "little") + body)


def test_errors_say_what_and_where() -> None:
    def fails(body: str) -> str:
        data = bytes.fromhex(body)
        with pytest.raises(ProtocolError) as caught:
            messages.decode(len(data).to_bytes(8, "little") + data)
        return caught.value.message

    assert fails("63000000") == "there is no packet code 99, at byte 12 of a packet of 12 bytes"
    assert fails("04000000 01000000 0d000000") == (
        "argument 0 has the unknown type code 13, at byte 20 of a packet of 20 bytes"
    )
    assert fails("04000000 ffffffff").startswith("there cannot be -1 arguments")
    assert fails("04000000 ffffff7f").startswith("there cannot be 2147483647 arguments")
    assert fails("04000000 01000000 00000000 0102").startswith("argument 0 needs 8 bytes, 2 are left")
    assert fails("04000000 01000000 04000000 00").startswith("1 bytes too many")
    tensor = "0000000000000000 0100000000000000 01000000 00080100 ffffffffffffffff 0000000000000000"
    assert fails(f"06000000 {tensor} 0000000000000000").startswith("a tensor cannot have the shape [-1]")
    assert fails(f"06000000 {tensor.replace('01000000 00', '0f000000 00')}").startswith(
        "a tensor cannot have 15 dimensions"
    )
    assert fails("05000000 01000000 04000000").startswith("an exception has one argument, a string")


def test_an_empty_packet_is_nothing() -> None:
    assert messages.decode(bytes(8)) is None


def test_a_call_is_these_bytes() -> None:
    args = (-1, 1.5, "ab", b"c", None, DataType(2, 32), Device(1, 2))
    assert messages.encode(CallFunc(0x80028001, args)).hex() == "".join(
        (
            "5f0000000000000003000000018002800000000007000000",
            "00000000020000000b0000000c000000040000000500000006000000",
            "ffffffffffffffff000000000000f83f02000000000000006162010000000000000063",
            "02200100000000000100000002000000",
        )
    )


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1, object(), [1]])
def test_what_cannot_travel_is_a_usage_error(value: object) -> None:
    with pytest.raises(UsageError):
        messages.encode(CallFunc(1, (value,)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64"]
)
def test_element_types_have_equals_in_numpy(name: str) -> None:
    dtype = DataType.of(name)
    assert dtype.numpy == np.dtype(name)
    assert dtype.nbytes == np.dtype(name).itemsize


def test_other_element_types_are_refused() -> None:
    with pytest.raises(UsageError):
        DataType.of("complex64")
    for odd in (DataType(4, 16), DataType(0, 4), DataType(0, 8, 4)):
        with pytest.raises(ProtocolError):
            _ = odd.numpy
