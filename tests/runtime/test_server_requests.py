"""Requests to a server that the client would not send, and damaged packets."""

import struct

import numpy as np
import pytest

from crtgen import __version__
from crtgen.base.endpoints import EXECUTOR, GLOBALS
from crtgen.base.errors import LinkClosedError, LinkTimeoutError
from crtgen.device.rpc import frame
from crtgen.device.rpc.client import Client, Timeouts
from crtgen.device.rpc.messages import CallFunc, Code, CopyToRemote, InitServer, Return, SystemCall, encode
from crtgen.device.rpc.values import Device, Handle, TypeCode
from tests.runtime.conftest import Serve
from tests.runtime.raw import Raw, byte_tensor

pytestmark = pytest.mark.cc


def test_the_functions_are_those_of_the_table(raw: Raw) -> None:
    """In its order, and with its arguments: a call without any names the first that is missing."""
    there = [endpoint for endpoint in GLOBALS if not endpoint.only]
    handles = [raw.handle(endpoint.name) for endpoint in there]
    assert [handle - handles[0] for handle in handles] == list(range(len(there)))
    executor = encode(
        CallFunc(raw.handle("tvm.aot_executor.create"), (Handle(0x8000, TypeCode.MODULE), Device(), "add"))
    )
    created = raw.ask(executor)
    assert isinstance(created, Return)
    _, module = created.args
    assert isinstance(module, Handle)
    for i, endpoint in enumerate(EXECUTOR):
        wanted = (Handle(module.value, TypeCode.MODULE), endpoint.name, 1)
        found = raw.ask(encode(CallFunc(raw.handle("tvm.rpc.server.ModuleGetFunction"), wanted)))
        handle = module.value << 16 | 0x8000 | i
        assert found == Return((int(TypeCode.FUNCTION), Handle(handle)))
        handles.append(handle)
    for endpoint, handle in zip((*there, *EXECUTOR), handles, strict=True):
        if endpoint.letters:
            text = f"argument 0 of {endpoint.name} is missing or of a wrong type"
            assert text in raw.refused(encode(CallFunc(handle)))


def test_every_bad_request_is_answered(raw: Raw) -> None:
    handle = raw.handle("crtgen.info")
    for payload, text in (
        (b"\x01", "does not have the length"),
        (struct.pack("<Q", 4), "does not have the length"),
        (struct.pack("<Qi", 5, 9), "does not have the length"),
        (struct.pack("<Qi", 4, 99), "a request of code 99 is not supported"),
        (struct.pack("<Qi", 4, 0), "a request of code 0 is not supported"),
        (encode(SystemCall(Code.SET_DEVICE, (Device(),))), "a request of code 11 is not supported"),
        (encode(SystemCall(Code.GET_ATTR, (Device(), 0))), "a request of code 12 is not supported"),
        (encode(Return(())), "a request of code 4 is not supported"),
        (struct.pack("<Qi", 4, 3), "cut short"),
        (struct.pack("<QiQiii", 24, 3, handle, 2, 0, 0), "the arguments of the request are cut short"),
        (struct.pack("<QiQi", 16, 3, handle, 17), "a call has at most 16 arguments"),
        (struct.pack("<QiQi", 16, 3, handle, -1), "a call has at most 16 arguments"),
        (struct.pack("<QiQiiQ", 28, 3, handle, 1, 8, 0), "argument 0 has type code 8, which cannot"),
        (struct.pack("<QiQiiQ", 28, 3, handle, 1, 13, 0), "argument 0 has type code 13, which cannot"),
        (struct.pack("<QiQiiQ", 28, 3, handle, 1, 11, 2**64 - 1), "cut short"),
        (struct.pack("<QiQiiQ", 28, 3, handle, 1, 12, 1), "cut short"),
        (struct.pack("<Qi", 4, 6), "a tensor of the request is cut short"),
        (struct.pack("<QiQ", 12, 2, 9), "the version of the protocol is cut short"),
        (encode(CopyToRemote(byte_tensor(0, 1), b"12"))[:-1], "does not have the length"),
        (encode(SystemCall(Code.GET_GLOBAL_FUNC, ())), "argument 0 of request 9 is missing"),
        (encode(SystemCall(Code.GET_GLOBAL_FUNC, (1,))), "argument 0 of request 9 is missing or of a wrong"),
        (encode(SystemCall(Code.FREE_DATA, (Device(),))), "argument 1 of request 14 is missing"),
        (encode(SystemCall(Code.ALLOC_DATA_WITH_SCOPE, (byte_tensor(0, 1), "texture"))), "no memory scope"),
        (encode(CallFunc(0)), "there is no function 0x0000000000000000"),
        (encode(CallFunc(handle + 100)), "there is no function"),
        (encode(CallFunc(handle | 1 << 32)), "there is no function 0x00000001"),
        (encode(CallFunc(0x8001800D)), "there is no function"),
        (encode(CallFunc(0x80058000)), "there is no function"),
        (encode(CallFunc(handle, (Handle(0x8009, TypeCode.MODULE),))), "there is no module"),
        (encode(CallFunc(handle, (Handle(7, TypeCode.FUNCTION),))), "there is no function"),
    ):
        assert text in raw.refused(payload), payload
    assert raw.ask(encode(CallFunc(handle))) == Return((11, f"crtgen {__version__} add once broken"))


def test_requests_without_effect(raw: Raw) -> None:
    device = Device()
    for code, args in (
        (Code.STREAM_SYNC, (device, Handle(0))),
        (Code.CREATE_STREAM, (device,)),
        (Code.FREE_STREAM, (device, Handle(0))),
        (Code.SET_STREAM, (device, Handle(0))),
        (Code.FREE_HANDLE, (Handle(0x8000), 9)),
        (Code.FREE_HANDLE, (Handle(raw.handle("crtgen.info")), 10)),
    ):
        assert raw.ask(encode(SystemCall(code, args))) == Return((None,))
    assert raw.ask(encode(InitServer("0.14.0"))) == Return((None,))
    for handle, kind in ((0x9000, 9), (0x80048888, 10), (0x1234, 13), (0x8000, 8)):
        assert "no" in raw.refused(encode(SystemCall(Code.FREE_HANDLE, (Handle(handle), kind))))


def test_an_empty_message_means_nothing(raw: Raw) -> None:
    raw.send(raw.wire(bytes(8)))
    assert raw.handle("crtgen.info")


def test_calls_with_full_buffers_keep_inside(serve: Serve) -> None:
    raw = Raw(serve("models", 256))
    info, memory = raw.handle("crtgen.info"), raw.handle("crtgen.memory")
    text = f"crtgen {__version__} add once broken"
    overhead = len(encode(CallFunc(info, (b"",)))) + 3
    for left in range(48):
        filler = bytes(256 - overhead - left)
        room = left // 8 * 8
        answers = [raw.ask(encode(CallFunc(handle, (filler,)))) for handle in (info, memory)]
        assert [isinstance(answer, Return) for answer in answers] == [room > len(text), room >= 8]


def test_an_oversize_packet_is_answered_and_forgotten(serve: Serve) -> None:
    raw = Raw(serve("models", 256))
    text = raw.refused(encode(CopyToRemote(byte_tensor(0, 300), bytes(300))))
    assert text == "a packet of 352 bytes: this device takes 245"
    assert raw.handle("crtgen.info")


def test_damaged_packets_never_harm_the_next(raw: Raw) -> None:
    good = raw.wire(encode(SystemCall(Code.GET_GLOBAL_FUNC, ("crtgen.info",))))
    expected = raw.handle("crtgen.info")
    generator = np.random.default_rng(2)
    for _ in range(300):
        bad = bytearray(good)
        match generator.integers(4):
            case 0:
                bad[generator.integers(2, len(bad))] ^= 1 << generator.integers(8)
            case 1:
                del bad[generator.integers(len(bad)) :]
            case 2:
                bad[2:6] = generator.integers(128, 256, 4, np.uint8).tobytes().replace(b"\xff", b"\xfe")
            case 3:
                bad = bytearray(generator.integers(0, 256, 50, np.uint8).tobytes())
        raw.send(bytes(bad) + frame.LEAD_IN)
        assert raw.handle("crtgen.info") == expected


def test_a_duplicated_packet_is_answered_twice(raw: Raw) -> None:
    wire = raw.wire(encode(SystemCall(Code.GET_GLOBAL_FUNC, ("crtgen.info",))))
    raw.send(wire + wire)
    assert raw.receive() == raw.receive()


def test_packets_of_another_session_are_dropped(serve: Serve) -> None:
    stream = serve()
    raw = Raw(stream)
    first = raw.wire(encode(SystemCall(Code.GET_GLOBAL_FUNC, ("crtgen.info",))))
    raw.start()
    raw.send(first)
    with pytest.raises(LinkTimeoutError):
        raw.receive(0.2)
    assert raw.handle("crtgen.info")


def test_shutdown_ends_the_process(serve: Serve) -> None:
    """It closes its output itself, while its input is still open."""
    stream = serve()
    connection = Client(stream, timeouts=Timeouts(5, 60, 60))
    connection.connect()
    connection.shutdown()
    with pytest.raises(LinkClosedError, match="end of file"):
        stream.read(60)
