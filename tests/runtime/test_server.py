"""The server as a process, driven by crtgen's client and, where the client would not, by raw packets."""

import struct
from collections.abc import Callable

import numpy as np
import pytest

from crtgen import __version__
from crtgen.errors import LinkTimeoutError, RemoteError
from crtgen.rpc import frame
from crtgen.rpc.client import Client, Timeouts
from crtgen.rpc.messages import (
    CallFunc,
    Code,
    CopyFromRemote,
    CopyToRemote,
    InitServer,
    Packet,
    RemoteException,
    Return,
    SystemCall,
    decode,
    encode,
)
from crtgen.rpc.values import DataType, Device, Handle, Tensor, TypeCode
from crtgen.run.streams import PipeStream

pytestmark = pytest.mark.cc

Serve = Callable[..., PipeStream]
POOL = 16384
BYTES = DataType.of(np.uint8)


@pytest.fixture
def client(serve: Serve) -> Client:
    connection = Client(serve(), timeouts=Timeouts(5, 10, 10))
    connection.connect()
    return connection


class Raw:
    """A session in which any bytes can be sent."""

    def __init__(self, stream: PipeStream) -> None:
        self._stream = stream
        self._decoder = frame.Decoder()
        self._packets: list[bytes] = []
        self.start()

    def start(self) -> None:
        """Begin a session."""
        self.send(frame.encode(b"\x05\x00\x00\x01"))
        while True:
            packet = self.receive()
            if packet[2] == 1:
                self.id = packet[:2]
                return

    def send(self, wire: bytes) -> None:
        self._stream.write(wire)

    def receive(self, timeout: float = 10) -> bytes:
        """The next packet."""
        while not self._packets:
            events = self._decoder.feed(self._stream.read(timeout))
            assert all(isinstance(event, frame.Packet) for event in events), events
            self._packets += [event.payload for event in events if isinstance(event, frame.Packet)]
        return self._packets.pop(0)

    def wire(self, payload: bytes) -> bytes:
        """A payload as a message of this session."""
        return frame.encode(self.id + b"\x10" + payload)

    def ask(self, payload: bytes) -> Packet:
        """Send a payload; the reply."""
        self.send(self.wire(payload))
        reply = self.receive()
        assert reply[:3] == self.id + b"\x10"
        packet = decode(reply[3:])
        assert packet is not None
        return packet

    def refused(self, payload: bytes) -> str:
        """Send a payload; the text of the exception that has to come."""
        packet = self.ask(payload)
        assert isinstance(packet, RemoteException), packet
        return packet.text

    def handle(self, name: str) -> int:
        reply = self.ask(encode(SystemCall(Code.GET_GLOBAL_FUNC, (name,))))
        assert isinstance(reply, Return)
        (handle,) = reply.args
        assert isinstance(handle, Handle)
        return handle.value

    def allocate(self, size: int) -> int:
        reply = self.ask(encode(SystemCall(Code.ALLOC_DATA, (Device(), size, 64, BYTES))))
        assert isinstance(reply, Return)
        (handle,) = reply.args
        assert isinstance(handle, Handle)
        return handle.value


@pytest.fixture
def raw(serve: Serve) -> Raw:
    return Raw(serve())


# --- functions


def test_what_the_image_is(client: Client) -> None:
    info = client.info()
    assert info is not None
    assert (info.version, info.models) == (__version__, ("add", "once", "broken"))
    memory = client.memory()
    assert memory is not None
    assert (memory.total, memory.free) == (POOL, POOL)
    assert client.max_packet == 2048 - 11


def test_an_unknown_global_function_is_null(client: Client) -> None:
    assert client.get_function("crtgen.nothing") is None
    assert client.get_function("") is None


def test_functions_of_the_registry(client: Client) -> None:
    library = client.system_lib()
    a, b = np.array([1, 2, 127], np.int8), np.array([10, 20, 1], np.int8)
    with client.allocate((3,), np.int8) as out:
        assert library.function("toy_add")(a, b, out) is None
        assert out.read().tolist() == [11, 22, -128]
    memory = client.memory()
    assert memory is not None
    assert memory.free == POOL
    assert library.get_function("toy") is None


VALUES = (0, -1, 2**63 - 1, 0.25, -1e300, "", "text \u00e9", b"", b"\xff\xfe\xfd\x00", None)


@pytest.mark.parametrize("value", VALUES)
def test_every_value_comes_back(client: Client, value: object) -> None:
    answer = client.system_lib().function("toy_echo")(value)
    assert answer == value
    assert type(answer) is type(value)


def test_an_operator_that_fails_is_named(client: Client) -> None:
    with pytest.raises(RemoteError, match=r"toy_fail failed with code -7$"):
        client.system_lib().function("toy_fail")()
    with pytest.raises(RemoteError, match=r"toy_add failed with code -1: toy_add adds int8"):
        client.system_lib().function("toy_add")(*[np.zeros(3, np.int16)] * 3)
    with pytest.raises(RemoteError, match=r"toy_add failed with code -1: the workspace is too small"):
        client.system_lib().function("toy_add")(*[np.zeros(300, np.int8)] * 3)


def test_a_tensor_that_is_no_executors_cannot_be_returned(client: Client) -> None:
    with pytest.raises(RemoteError, match="toy_echo returns a value of type code 7"):
        client.system_lib().function("toy_echo")(np.zeros(3, np.int8))


def test_a_fault_is_reported(serve: Serve) -> None:
    log: list[str] = []
    text = "hard fault in toy_fault: pc 0x1234abcd, lr 0x00000080, cfsr 0x00008200"
    with Client(serve(), on_log=log.append) as client:
        with pytest.raises(RemoteError) as caught:
            client.system_lib().function("toy_fault")()
        assert caught.value.message == text
        assert log == [text]


def test_random_fill(client: Client) -> None:
    fill = client.function("tvm.contrib.random.random_fill")
    for dtype in (np.float16, np.float32, np.float64):
        with client.allocate((500,), dtype) as tensor:
            fill(tensor)
            values = tensor.read()
            assert values.min() > 0
            assert values.max() < 2
            assert len(set(values.tolist())) > 200
    with client.allocate((3, 500), np.int8) as tensor:
        fill(tensor)
        assert len(set(tensor.read().reshape(-1).tolist())) > 200


# --- memory


@pytest.mark.parametrize("receive", [256, 300, 2048, 4096, 65536])
def test_copies_survive_any_buffer(serve: Serve, receive: int) -> None:
    data = np.random.default_rng(1).integers(250, 256, (4, 1000), np.uint8)
    with Client(serve("models", receive)) as client, client.allocate(data.shape, data.dtype) as tensor:
        assert client.max_packet == receive - 11
        tensor.write(data)
        np.testing.assert_array_equal(tensor.read(), data)


def test_a_full_pool_says_what_is_free(client: Client) -> None:
    text = r"no room for 97 bytes: 96 of 16384 are free, 1 of 32 blocks"
    with client.allocate((POOL - 96,), np.uint8), pytest.raises(RemoteError, match=text):
        client.allocate((97,), np.uint8)
    client.allocate((POOL,), np.uint8).close()


def test_a_new_session_finds_the_pool_empty(client: Client) -> None:
    client.allocate((POOL,), np.uint8)
    client.connect()
    client.allocate((POOL,), np.uint8).close()


def _tensor(data: int, *shape: int, offset: int = 0) -> Tensor:
    return Tensor(data, shape, BYTES, Device(), offset)


def test_wild_addresses_are_refused(raw: Raw) -> None:
    block = raw.allocate(100)
    fill = raw.handle("tvm.contrib.random.random_fill")
    wild = [
        *((0, 0, 1), (block, 0, 101), (block, 100, 1), (block - 1, 0, 1), (block, 2**64 - 1, 1)),
        *((block + 101, 0, 0), (2**64 - 16, 32, 8), (2**64 - 1, 0, 1), (0x2000_0000, 0, 4)),
        *((block ^ 2**63, 0, 1), (block, 50, 51)),
    ]
    for data, offset, size in wild:
        tensor = _tensor(data, size, offset=offset)
        assert "neither allocated nor" in raw.refused(encode(CopyToRemote(tensor, bytes(size))))
        assert "neither allocated nor" in raw.refused(encode(CopyFromRemote(tensor, size)))
        assert "neither allocated nor" in raw.refused(encode(CallFunc(fill, (tensor,))))
        good = _tensor(block, size)
        for pair in ((tensor, good), (good, tensor)):
            text = raw.refused(encode(SystemCall(Code.COPY_AMONG_REMOTE, (*pair, None))))
            assert "neither allocated nor" in text
    for size in (2**32, 2**63, 2**64 - 1):
        assert "neither allocated nor" in raw.refused(encode(CopyFromRemote(_tensor(block, 1), size)))
    for address in (0, 1, block + 1, block - 1, 2**64 - 1):
        free = SystemCall(Code.FREE_DATA, (Device(), Handle(address)))
        assert "no block of memory was allocated" in raw.refused(encode(free))
    for address in (1, block - 1, block + 101, 2**64 - 1):
        assert "neither allocated nor" in raw.refused(encode(CallFunc(fill, (Handle(address),))))
    assert raw.ask(encode(SystemCall(Code.FREE_DATA, (Device(), Handle(block))))) == Return((None,))
    assert "neither allocated nor" in raw.refused(encode(CopyFromRemote(_tensor(block, 1), 1)))


def test_sizes_that_overflow_are_refused(raw: Raw) -> None:
    block = raw.allocate(16)
    fill = raw.handle("tvm.contrib.random.random_fill")
    for shape in ((2**32,), (2**32, 2**32), (65536, 65536), (-1,), (-(2**63), 2), (2**31, 2, 2**40)):
        tensor = _tensor(block, *shape)
        assert "negative extent, or 4 GiB" in raw.refused(encode(CallFunc(fill, (tensor,))))
        scoped = SystemCall(Code.ALLOC_DATA_WITH_SCOPE, (_tensor(0, *shape), None))
        assert "negative extent, or 4 GiB" in raw.refused(encode(scoped))
    for size, align in ((-1, 16), (2**32, 16), (2**63 - 1, 16), (8, 3), (8, -16), (8, 2**62)):
        alloc = SystemCall(Code.ALLOC_DATA, (Device(), size, align, BYTES))
        assert "no power of two" in raw.refused(encode(alloc))


def test_copy_on_the_device(raw: Raw) -> None:
    a, b = raw.allocate(8), raw.allocate(8)
    assert raw.ask(encode(CopyToRemote(_tensor(a, 8), b"01234567"))) == Return((None,))
    among = SystemCall(Code.COPY_AMONG_REMOTE, (_tensor(a, 6), _tensor(b, 6, offset=2), Handle(0)))
    assert raw.ask(encode(among)) == Return((None,))
    reply = raw.ask(encode(CopyFromRemote(_tensor(b, 8, offset=2), 6)))
    assert getattr(reply, "data", None) == b"012345"
    text = raw.refused(encode(SystemCall(Code.COPY_AMONG_REMOTE, (_tensor(a, 6), _tensor(b, 5), None))))
    assert text == "a copy from a tensor of 6 bytes to one of 5"


# --- executors


def test_add(client: Client) -> None:
    a, b = np.array([[1, 2, 3], [4, 5, 127]], np.int8), np.array([[1, 1, 1], [2, 2, 1]], np.int8)
    with client.aot_executor("add") as executor:
        assert (executor.num_inputs, executor.num_outputs) == (2, 1)
        assert [executor.input_name(i) for i in range(2)] == ["a", "b"]
        assert executor.input_index("b") == 1
        assert executor.module.function("get_input_index")("c") == -1
        assert executor.module.function("get_output_name")(0) == "c"
        executor.set_input("a", a)
        executor.module.function("set_input")("b", b)
        executor.run()
        assert executor.get_output(0).tolist() == [[2, 3, 4], [6, 7, -128]]


def test_executors_refuse(client: Client) -> None:
    with pytest.raises(RemoteError, match="no model of this image is called default"):
        client.aot_executor()
    with client.aot_executor("add") as executor:
        for name, args, text in (
            ("get_input", (2,), "add has 2 inputs"),
            ("get_input", (-1,), "add has 2 inputs"),
            ("get_input", ("c",), "add has no input c"),
            ("get_output", (1,), "add has 1 outputs"),
            ("get_output", (), "argument 0 of get_output is missing"),
            ("get_input_name", ("a",), "argument 0 of get_input_name is missing or of a wrong type"),
            ("set_input", (0, np.zeros(5, np.int8)), "input a has 6 bytes"),
            ("set_input", (0, np.zeros(6, np.uint8)), "input a has 6 bytes, or another type"),
            ("load_params", (b"",), "the parameters of add are linked"),
            ("share_params", (), "the parameters of add are linked"),
        ):
            with pytest.raises(RemoteError, match=text):
                executor.module.function(name)(*args)
    failed = pytest.raises(RemoteError, match="run of broken failed with code -3")
    with client.aot_executor("broken") as executor, failed:
        executor.run()


def test_used_up_inputs_have_to_be_set_again(client: Client) -> None:
    x = np.array([1, 2, 3, 4], np.int16)
    with client.aot_executor("once") as executor:
        with pytest.raises(
            RemoteError, match="the inputs of once are not set, or used up: set all 1 of them"
        ):
            executor.run()
        executor.set_input(0, x)
        executor.run()
        assert executor.get_output(0).tolist() == [2, 4, 6, 8]
        with pytest.raises(RemoteError, match="or used up"):
            executor.run()
        executor.module.function("set_input")("x", x)
        executor.run()
        assert executor.get_output(0).tolist() == [2, 4, 6, 8]


@pytest.fixture
def shared(serve: Serve) -> Client:
    connection = Client(serve("shared"), timeouts=Timeouts(5, 10, 10))
    connection.connect()
    return connection


def test_models_that_share_an_arena_never_see_each_others_data(shared: Client) -> None:
    client = shared
    x = np.array([2, 4, 6, 8], np.int8)
    with client.aot_executor("next") as one, client.aot_executor("half") as other:
        with pytest.raises(
            RemoteError, match="the inputs of next are not set, or used up: set all 1 of them"
        ):
            one.run()
        one.set_input(0, x)
        one.run()
        one.run()
        assert one.get_output(0).tolist() == [3, 5, 7, 9]
        other.set_input(0, x)
        with pytest.raises(RemoteError, match="the outputs of next are void"):
            one.get_output(0)
        with pytest.raises(RemoteError, match="inputs of next are not set"):
            one.run()
        other.run()
        assert other.get_output(0).tolist() == [1, 2, 3, 4]
        one.set_input(0, x + 1)
        with pytest.raises(RemoteError, match="the outputs of half are void"):
            other.get_output(0)
        with pytest.raises(RemoteError, match="or used up"):
            other.run()
        one.run()
        assert one.get_output(0).tolist() == [4, 6, 8, 10]


def test_timing_and_the_registry_take_a_shared_arena_too(shared: Client) -> None:
    client = shared
    x = np.array([2, 4, 6, 8], np.int8)
    with client.aot_executor("next") as one, client.aot_executor("half") as other:
        for disturb in (
            lambda: client.measure(other, 1),
            lambda: client.system_lib().function("half_run")(1),
        ):
            one.set_input(0, x)
            one.run()
            disturb()
            with pytest.raises(RemoteError, match="the outputs of next are void"):
                one.get_output(0)
            with pytest.raises(RemoteError, match="inputs of next are not set"):
                one.run()
        other.set_input(0, x)
        client.system_lib().function("half_run")(1)
        with pytest.raises(RemoteError, match="or used up"):
            other.run()


def test_half_an_input_is_not_set(raw: Raw) -> None:
    library = raw.ask(encode(CallFunc(raw.handle("runtime.SystemLib"))))
    assert isinstance(library, Return)
    assert library.args == (int(TypeCode.MODULE), Handle(0x8000))
    executor = Handle(0x8002, TypeCode.MODULE)

    def call(name: str, *args: object) -> Packet:
        find = CallFunc(raw.handle("tvm.rpc.server.ModuleGetFunction"), (executor, name, 1))
        found = raw.ask(encode(find))
        assert isinstance(found, Return)
        handle = found.args[1]
        assert isinstance(handle, Handle)
        return raw.ask(encode(CallFunc(handle.value, args)))  # type: ignore[arg-type]

    place = call("get_input", 0)
    assert isinstance(place, Return)
    tensor = place.args[1]
    assert isinstance(tensor, Tensor)
    raw.ask(encode(CopyToRemote(tensor, bytes(4))))
    assert isinstance(call("run"), RemoteException)
    second = Tensor(tensor.data, tensor.shape, tensor.dtype, tensor.device, 4)
    raw.ask(encode(CopyToRemote(second, bytes(4))))
    assert call("run") == Return((4, None))
    assert isinstance(call("run"), RemoteException)


def test_timing_spoils_what_it_uses_up(client: Client) -> None:
    x = np.array([1, 2, 3, 4], np.int16)
    with client.aot_executor("once") as executor:
        get_output = executor.module.function("get_output")
        executor.set_input(0, x)
        ticks = client.measure(executor, 3)
        assert ticks is not None
        assert ticks.tolist() == [50, 50, 50]
        with pytest.raises(RemoteError, match="or used up"):
            executor.run()
        with pytest.raises(RemoteError, match="the outputs of once are void"):
            get_output(0)
        executor.set_input(0, x)
        executor.run()
        assert get_output(0).read().tolist() == [2, 4, 6, 8]
        assert client.time_evaluator(executor.module, number=1, repeat=1) == (0.05,)
        with pytest.raises(RemoteError, match="the outputs of once are void"):
            get_output(0)


# --- time


def test_calibration(client: Client) -> None:
    assert client.ticks_per_second() == 1000
    assert client.calibrate(12345) == 24690
    with pytest.raises(RemoteError, match="1 to 2147483647 loops"):
        client.calibrate(0)


def test_measure_and_profile(client: Client) -> None:
    with client.aot_executor("add") as executor:
        ticks, layers = client.measure(executor, 5), client.profile(executor)
        assert ticks is not None
        assert layers is not None
        assert ticks.tolist() == [123] * 5
        assert layers.tolist() == [100, 23]
        measure = client.function("crtgen.measure")
        with pytest.raises(RemoteError, match=r"1000000 results: the receive buffer has room for \d+"):
            measure(executor.module, 1000000)
        with pytest.raises(RemoteError, match="4294967295 results"):
            measure(executor.module, -1)
        with pytest.raises(RemoteError, match="takes an executor, not the system library"):
            measure(client.system_lib(), 1)


def test_many_runs_are_measured_in_parts(serve: Serve) -> None:
    with Client(serve("models", 256)) as client, client.aot_executor("add") as executor:
        ticks = client.measure(executor, 100)
        assert ticks is not None
        assert ticks.tolist() == [123] * 100


def test_time_evaluator(client: Client) -> None:
    with client.aot_executor("add") as executor:
        assert client.time_evaluator(executor.module, number=7, repeat=3) == (0.123,) * 3
        # A run has 123 ticks of 1 ms; 1 run, then 1000 / 123 + 1 = 9 of them.
        assert client.time_evaluator(executor.module, min_repeat_ms=1000) == (0.123,)
    evaluate = client.function("runtime.RPCTimeEvaluator")
    library = client.system_lib()
    with pytest.raises(RemoteError, match="has no function nothing"):
        evaluate(library, "nothing", 1, 0, 1, 1, 0, 0, 0, 1, "")
    with pytest.raises(RemoteError, match=r"argument 4 of runtime\.RPCTimeEvaluator is out of range"):
        evaluate(library, "toy_echo", 1, 0, 0, 1, 0, 0, 0, 1, "")
    with pytest.raises(RemoteError, match="does nothing between the repeats"):
        evaluate(library, "toy_echo", 1, 0, 1, 1, 0, 0, 0, 1, "cache_flush")
    with pytest.raises(RemoteError, match="does nothing between the repeats"):
        evaluate(library, "toy_echo", 1, 0, 1, 1, 0, 0, 0, 1, 4096, "")
    evaluate(library, "toy_echo", 1, 0, 1, 1, 0, 0, 0, 1, 0, "").close()
    failing = evaluate(library, "toy_fail", 1, 0, 1, 1, 0, 0, 0, 1, "")
    with pytest.raises(RemoteError, match="toy_fail failed"):
        failing()
    # A function that takes no time: 3 repeats of none, then it is given up.
    assert struct.unpack("<d", evaluate(library, "toy_echo", 1, 0, 1, 1, 10, 3, 0, 1, "")(5)) == (0.0,)


def test_time_evaluators_are_limited_and_freed(client: Client) -> None:
    evaluate, library = client.function("runtime.RPCTimeEvaluator"), client.system_lib()
    some = [evaluate(library, "toy_echo", 1, 0, 1, 1, 0, 0, 0, 1, "") for _ in range(4)]
    with pytest.raises(RemoteError, match="this device has 4 time evaluators, and all are in use"):
        evaluate(library, "toy_echo", 1, 0, 1, 1, 0, 0, 0, 1, "")
    some[2].close()
    with pytest.raises(RemoteError, match="there is no function"):
        some[2](1)
    assert evaluate(library, "toy_echo", 1, 0, 1, 1, 0, 0, 0, 1, "").handle == some[2].handle


# --- requests


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
        (encode(CopyToRemote(_tensor(0, 1), b"12"))[:-1], "does not have the length"),
        (encode(SystemCall(Code.GET_GLOBAL_FUNC, ())), "argument 0 of request 9 is missing"),
        (encode(SystemCall(Code.GET_GLOBAL_FUNC, (1,))), "argument 0 of request 9 is missing or of a wrong"),
        (encode(SystemCall(Code.FREE_DATA, (Device(),))), "argument 1 of request 14 is missing"),
        (encode(SystemCall(Code.ALLOC_DATA_WITH_SCOPE, (_tensor(0, 1), "texture"))), "no memory scope"),
        (encode(CallFunc(0)), "there is no function 0x0000000000000000"),
        (encode(CallFunc(handle + 100)), "there is no function"),
        (encode(CallFunc(handle | 1 << 32)), "there is no function 0x00000001"),
        (encode(CallFunc(0x8001800B)), "there is no function"),
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


# --- damage


def test_an_oversize_packet_is_answered_and_forgotten(serve: Serve) -> None:
    raw = Raw(serve("models", 256))
    text = raw.refused(encode(CopyToRemote(_tensor(0, 300), bytes(300))))
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


def test_shutdown_ends_the_process(client: Client) -> None:
    client.shutdown()
