"""The Python device, spoken to packet by packet."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtgen.device.rpc import messages, session
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
from crtgen.device.rpc.server import ServedModel, Server
from crtgen.device.rpc.values import DataType, Device, Handle, Tensor, TypeCode

UINT8 = DataType(1, 8)
BASE = 0x2000_0000
DOUBLE = ServedModel("double", {"x": ((4,), "int16")}, [((4,), "int16")], lambda x: (2 * x,))


class Host:
    """Sends one request, returns the one reply."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.session = session.RpcSession()
        self.session.start()
        self.session.receive(server.receive(self.session.take_output()))

    def ask(self, request: Packet) -> Packet | None:
        return self.ask_raw(messages.encode(request))

    def ask_raw(self, payload: bytes) -> Packet | None:
        self.session.send(payload)
        wire = self.session.take_output()
        answer = b"".join(self.server.receive(wire[at : at + 1]) for at in range(len(wire)))
        events = self.session.receive(answer)
        assert all(isinstance(event, session.Message) for event in events)
        replies = [messages.decode(event.payload) for event in events if isinstance(event, session.Message)]
        assert len(replies) <= 1
        return replies[0] if replies else None

    def refused(self, request: Packet) -> str:
        reply = self.ask(request)
        assert isinstance(reply, RemoteException)
        return reply.text


@pytest.fixture
def host() -> Host:
    return Host(Server({"big": lambda: bytes(5000), "odd": lambda: [1]}, [DOUBLE], memory=256))


def test_boot_says_that_the_old_session_is_over() -> None:
    assert Server().boot() == bytes.fromhex("fe fffd03000000 000002 6677")


def test_blocks_are_checked_to_the_byte(host: Host) -> None:
    block = host.ask(SystemCall(Code.ALLOC_DATA, (Device(), 32, 8, UINT8)))
    assert block == Return((Handle(BASE + 32),))  # the model's input and output come first
    tensor = Tensor(BASE + 32, (32,), UINT8)
    data = bytes(range(32))
    assert host.ask(CopyToRemote(tensor, data)) == Return((None,))
    assert host.ask(CopyFromRemote(tensor, 32)) == CopyAck(data)
    inner = Tensor(BASE + 32, (32,), UINT8, Device(), 30)
    assert host.ask(CopyFromRemote(inner, 2)) == CopyAck(b"\x1e\x1f")
    assert host.refused(CopyFromRemote(inner, 3)) == "no 3 bytes at address 0x2000003e"
    assert "no 33 bytes" in host.refused(CopyToRemote(tensor, bytes(33)))
    assert "no 1 bytes" in host.refused(CopyToRemote(Tensor(BASE + 64, (1,), UINT8), b"x"))
    assert "no 1 bytes" in host.refused(CopyFromRemote(Tensor(BASE, (1,), UINT8, Device(), (1 << 64) - 1), 1))
    assert host.ask(CopyFromRemote(tensor, 32)) == CopyAck(data)


def test_memory_is_used_again(host: Host) -> None:
    ask = SystemCall(Code.ALLOC_DATA_WITH_SCOPE, (Tensor(0, (100,), UINT8), None))
    assert host.ask(ask) == Return((Handle(BASE + 32),))
    assert host.ask(ask) == Return((Handle(BASE + 144),))  # 100 bytes take 112
    assert host.refused(ask) == "cannot allocate 100 bytes, 0 are free"
    assert host.ask(SystemCall(Code.FREE_DATA, (Device(), Handle(BASE + 32)))) == Return((None,))
    assert "was not allocated" in host.refused(SystemCall(Code.FREE_DATA, (Device(), Handle(BASE + 32))))
    assert host.ask(ask) == Return((Handle(BASE + 32),))


def test_copies_among_tensors(host: Host) -> None:
    for _ in range(2):
        host.ask(SystemCall(Code.ALLOC_DATA, (Device(), 16, 8, UINT8)))
    source, target = Tensor(BASE + 32, (16,), UINT8), Tensor(BASE + 48, (16,), UINT8)
    host.ask(CopyToRemote(source, b"0123456789abcdef"))
    copy = SystemCall(Code.COPY_AMONG_REMOTE, (source, target, Handle(0)))
    assert host.ask(copy) == Return((None,))
    assert host.ask(CopyFromRemote(target, 16)) == CopyAck(b"0123456789abcdef")


def test_every_request_gets_a_reply(host: Host) -> None:
    assert host.ask(InitServer("0.8.0")) == Return((None,))
    assert host.ask(SystemCall(Code.STREAM_SYNC, (Device(), Handle(0)))) == Return((None,))
    assert "SET_DEVICE is not supported" in host.refused(SystemCall(Code.SET_DEVICE, (Device(),)))
    assert "GET_ATTR is not supported" in host.refused(SystemCall(Code.GET_ATTR, (Device(), 1)))
    assert "ALLOC_DATA is not supported" in host.refused(SystemCall(Code.ALLOC_DATA, ()))
    assert host.refused(CallFunc(0x8008_9000)) == "there is no function 0x80089000"
    assert "cannot be freed" in host.refused(SystemCall(Code.FREE_HANDLE, (Handle(1), 3)))
    assert "is not a request" in host.refused(Return(()))
    odd = host.ask_raw(bytes.fromhex("0400000000000000 63000000"))
    assert odd == RemoteException("there is no packet code 99, at byte 12 of a packet of 12 bytes")


def test_a_reply_stays_within_the_packet_size(host: Host) -> None:
    def call(name: str) -> CallFunc:
        found = host.ask(SystemCall(Code.GET_GLOBAL_FUNC, (name,)))
        assert isinstance(found, Return)
        (handle,) = found.args
        assert isinstance(handle, Handle)
        return CallFunc(handle.value)

    assert "too large" in host.refused(call("big"))
    assert "a list cannot be returned" in host.refused(call("odd"))
    assert host.ask(call("tvm.rpc.server.GetCRTMaxPacketSize")) == Return((0, 2037))


def test_set_input_copies_a_tensor_into_the_model() -> None:
    server = Server(models=[DOUBLE])
    executor = server._models["double"].functions()
    address = server.pool.allocate(8)
    source = Tensor(address, (4,), DataType(0, 16))
    server.pool.array(source)[...] = [1, 2, 3, -4]
    executor["set_input"]("x", source)
    executor["run"]()
    result = server.pool.array(executor["get_output"](0)[1])
    assert np.array_equal(result, [2, 4, 6, -8])


def test_modules_have_handles_of_the_registry_s_form(host: Host) -> None:
    assert host.ask(SystemCall(Code.GET_GLOBAL_FUNC, ("runtime.SystemLib",))) == Return((Handle(0x80088002),))
    assert host.ask(CallFunc(0x80088002)) == Return((TypeCode.MODULE, Handle(0x8000)))


def test_a_shutdown_ends_it(host: Host) -> None:
    assert host.ask(Shutdown()) is None
    assert host.server.stopped
    assert host.ask(InitServer("0.8.0")) is None


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_message_gets_at_most_one_reply(payloads: list[bytes]) -> None:
    host = Host(Server(models=[DOUBLE], memory=256))
    for payload in payloads:
        host.ask_raw(payload)
        host.ask_raw(len(payload).to_bytes(8, "little") + payload)
    assert host.ask(InitServer("0.8.0")) == Return((None,))
