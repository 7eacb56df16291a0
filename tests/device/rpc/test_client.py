"""The client against the Python device and against the captured one."""

import struct
from collections.abc import Callable

import numpy as np
import pytest

from crtgen.base.errors import ProtocolError, RemoteError, UsageError
from crtgen.device.rpc import messages
from crtgen.device.rpc.client import Client, Info, PoolUsage
from crtgen.device.rpc.server import Server, ServerStream
from crtgen.device.rpc.values import DataType, Device, Handle, Tensor, TypeCode
from tests.device.rpc import capture
from tests.device.rpc.devices import ARGS_MODEL, device


@pytest.mark.parametrize("value", [0, -5, 2**63 - 1, -(2**63), 1.25, "Grüße", b"\xff\xfd\xff", None])
def test_values_come_back(value: object) -> None:
    with Client(ServerStream(device())) as client:
        result = client.function("echo")(value)
        assert result == value
        assert type(result) is type(value)


def test_numpy_scalars_are_numbers() -> None:
    with Client(ServerStream(device())) as client:
        echo = client.function("echo")
        assert (echo(np.int16(-3)), echo(np.float32(0.5)), echo(True)) == (-3, 0.5, 1)


def test_an_array_is_on_the_device_for_the_time_of_a_call() -> None:
    server = Server({"total": lambda tensor: int(server.pool.array(tensor).sum())})
    with Client(ServerStream(server)) as client:
        assert client.function("total")(np.arange(1000, dtype=np.int32)) == 499_500
        assert client.memory() == PoolUsage(1 << 20, 1 << 20)


def test_absent_functions_are_none() -> None:
    with Client(ServerStream(device())) as client:
        assert client.get_function("nothing") is None
        assert client.system_lib().get_function("nothing") is None
        assert (client.ticks_per_second(), client.calibrate(10)) == (None, None)
        with pytest.raises(UsageError, match="no function nothing"):
            client.function("nothing")


def test_a_thousand_calls() -> None:
    with Client(ServerStream(device())) as client:
        echo = client.function("echo")
        assert [echo(index) for index in range(1000)] == list(range(1000))


def test_a_remote_error_is_told_and_the_session_goes_on() -> None:
    with Client(ServerStream(device())) as client:
        with pytest.raises(RemoteError, match="ZeroDivisionError: division by zero"):
            client.function("divide")(1, 0)
        assert client.function("divide")(3, 2) == 1.5


def test_handles_are_given_back() -> None:
    stream = capture.ScriptedDevice()
    with Client(stream) as client:
        lookup = client.function("tvm.rpc.server.ModuleGetFunction")
    assert messages.decode(stream.asked[-1]) == messages.SystemCall(
        messages.Code.FREE_HANDLE, (Handle(lookup.handle.value), 10)
    )


@pytest.mark.parametrize("flow_controlled", [True, False])
@pytest.mark.parametrize("max_payload", [256, 2048, 65536])
def test_256_kib_up_and_down(max_payload: int, flow_controlled: bool) -> None:
    data = np.random.default_rng(1).integers(0, 256, 262_144, dtype=np.uint8)
    stream = ServerStream(device(max_payload=max_payload), flow_controlled=flow_controlled)
    with Client(stream) as client, client.allocate(data.shape, data.dtype) as tensor:
        tensor.write(data)
        assert np.array_equal(tensor.read(), data)


class Counting(ServerStream):
    """Counts requests, and the largest number of them between two reads that brought something."""

    def __init__(self, server: Server, *, flow_controlled: bool) -> None:
        super().__init__(server, flow_controlled=flow_controlled)
        self.requests = self.under_way = self.most = 0

    def write(self, data: bytes) -> None:
        super().write(data)
        self.requests += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)

    def read(self, timeout: float) -> bytes:
        data = super().read(timeout)
        self.under_way = 0
        return data


@pytest.mark.parametrize(("flow_controlled", "most"), [(True, 16), (False, 1)])
def test_requests_are_under_way_together_only_where_the_line_waits(flow_controlled: bool, most: int) -> None:
    stream = Counting(device(), flow_controlled=flow_controlled)
    with Client(stream) as client, client.allocate((100_000,), "uint8") as tensor:
        assert client.max_packet == 2037
        stream.most = 0
        tensor.write(np.zeros(100_000, np.uint8))
        assert stream.most == most


def test_a_copy_that_fails_is_not_continued() -> None:
    stream = Counting(device(), flow_controlled=False)
    with Client(stream) as client:
        assert client.max_packet == 2037
        stream.requests = 0
        with pytest.raises(RemoteError, match="no 1985 bytes"):
            client.copy_to(Tensor(1, (9000,), DataType(1, 8)), np.zeros(9000, np.uint8))
        assert stream.requests == 1


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (5, 7, 11, 3)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    data = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    with Client(ServerStream(device())) as client, client.allocate(shape, "float32") as tensor:
        tensor.write(data)
        result = tensor.read()
        assert result.shape == shape
        assert np.array_equal(result, data)


def test_a_wrong_array_is_refused_before_anything_is_sent() -> None:
    with Client(ServerStream(device())) as client, client.allocate((4,), "int8") as tensor:
        for wrong in (np.zeros(5, np.int8), np.zeros(4, np.uint8)):
            with pytest.raises(UsageError, match=r"for a tensor of int8 \(4,\)"):
                tensor.write(wrong)
        tensor.write(np.array([1, 2, 3, 4], np.dtype("int8")))


def test_big_endian_arrays_arrive_right() -> None:
    with Client(ServerStream(device())) as client, client.allocate((3,), "int32") as tensor:
        tensor.write(np.array([1, 2, 3], ">i4"))
        assert tensor.read().tolist() == [1, 2, 3]


def test_memory_that_is_freed_or_never_was_is_refused() -> None:
    with Client(ServerStream(device())) as client:
        tensor = client.allocate((9000,), "uint8")
        tensor.close()
        tensor.close()
        with pytest.raises(RemoteError, match="address 0x20000040"):
            tensor.write(np.zeros(9000, np.uint8))
        with pytest.raises(RemoteError, match="was not allocated"):
            client.free(Tensor(0x1234, (1,), tensor.tensor.dtype))
        assert client.function("echo")(5) == 5


def test_too_large_an_allocation_says_what_is_free() -> None:
    with Client(ServerStream(device(memory=1000))) as client:
        with pytest.raises(RemoteError, match="cannot allocate 2000 bytes, "):
            client.allocate((2000,), "uint8")
        client.allocate((500,), "uint8").close()


def test_a_model_runs() -> None:
    left, right = np.arange(6, dtype=np.int8).reshape(2, 3), np.full((2, 3), -7, np.int8)
    with Client(ServerStream(device())) as client, client.aot_executor("sum") as executor:
        assert (executor.num_inputs, executor.num_outputs) == (2, 2)
        assert [executor.input_name(index) for index in range(2)] == ["left", "right"]
        executor.set_input("left", left)
        executor.set_input(1, right)
        executor.run()
        assert np.array_equal(executor.get_output(0), left + right)
        assert executor.get_output(1) == -27
        with pytest.raises(UsageError, match="no input middle"):
            executor.set_input("middle", left)


def test_executors_give_their_place_back() -> None:
    with Client(ServerStream(device())) as client:
        for _ in range(20):
            client.aot_executor("sum").close()
        with pytest.raises(RemoteError, match="no model other"):
            client.aot_executor("other")


def test_what_our_own_firmware_has() -> None:
    def measure(module: Handle, runs: int) -> bytes:
        return struct.pack(f"<{runs}Q", *range(100, 100 + runs))

    functions: dict[str, Callable[..., object]] = {
        "crtgen.ticks_per_second": lambda: 25_000_000,
        "crtgen.calibrate": lambda loops: 2 * loops,
        "crtgen.measure": measure,
        "crtgen.profile": lambda module, first: struct.pack("<2Q", 1 << 40, 7),
    }
    with Client(ServerStream(Server(functions, [ARGS_MODEL], version="1.2"))) as client:
        assert client.info() == Info("1.2", ("sum",))
        assert client.memory() == PoolUsage(1 << 20, (1 << 20) - 64)
        assert client.ticks_per_second() == 25_000_000
        assert client.calibrate(500) == 1000
        with client.aot_executor("sum") as executor:
            ticks, layers = client.measure(executor, 3), client.profile(executor)
            assert ticks is not None
            assert layers is not None
            assert ticks.tolist() == [100, 101, 102]
            many = client.measure(executor, 600)
            assert many is not None
            assert many.tolist() == [*range(100, 346), *range(100, 346), *range(100, 208)]
            assert layers.tolist() == [1 << 40, 7]


@pytest.mark.parametrize(("wanted", "rest"), [(12, [0, ""]), (11, [""])], ids=["0.14 and later", "before"])
def test_the_time_evaluator(wanted: int, rest: list[object]) -> None:
    asked: list[object] = []

    def evaluator(*args: object) -> Callable[[], bytes]:
        if len(args) != wanted:
            raise ValueError("wrong number of arguments")
        asked.extend(args)
        return lambda: struct.pack("<3d", 0.5, 0.25, 1.0)

    with Client(ServerStream(Server({"runtime.RPCTimeEvaluator": evaluator}, [ARGS_MODEL]))) as client:
        library = client.system_lib()
        times = client.time_evaluator(library, "run", number=10, repeat=3, min_repeat_ms=7)
    assert times == (0.5, 0.25, 1.0)
    assert asked == [Handle(0x8000, library.handle.type), "run", 1, 0, 10, 3, 7, 100, 0, 1, *rest]


def test_as_many_times_come_back_as_were_asked_for() -> None:
    server = Server({"runtime.RPCTimeEvaluator": lambda *args: lambda: bytes(16)})
    with (
        Client(ServerStream(server)) as client,
        pytest.raises(ProtocolError, match="2 times came back for 3"),
    ):
        client.time_evaluator(client.system_lib(), repeat=3)


def test_the_handle_0_is_nothing() -> None:
    """TVM's firmware answers so when it does not know a function."""

    class Nothing(Server):
        def _find(self, module: int, name: str, kind: TypeCode = TypeCode.HANDLE) -> Handle | None:
            return Handle(0, kind) if name == "absent" else super()._find(module, name, kind)

    with Client(ServerStream(Nothing(models=[ARGS_MODEL]))) as client:
        assert client.get_function("absent") is None
        assert client.system_lib().get_function("absent") is None


def test_requests_are_those_of_tvm_byte_by_byte() -> None:
    stream = capture.ScriptedDevice()
    logs: list[str] = []
    expected = {request for request, _ in capture.exchanges()}
    feature = messages.decode(next(r for r, _ in capture.exchanges() if r[8] == 7 and len(r) == 574))
    assert isinstance(feature, messages.CopyToRemote)
    pattern = (np.arange(3000) % 256).astype(np.uint8)
    with Client(stream, on_log=logs.append) as client:
        with client.allocate((3000,), "uint8") as tensor:
            tensor.write(pattern)
            assert np.array_equal(tensor.read(), pattern)
        library = client.system_lib()
        assert client.module_get_function(library, "tvmgen_kws_fused_cast_subtract") is None
        library.close()
        with client.aot_executor("default") as executor:
            for name in ("get_input", "get_num_outputs", "get_input_index", "get_num_inputs"):
                assert executor.module.get_function(name) is not None
            assert executor.module.get_function("get_input_name") is not None
            executor.set_input(0, np.frombuffer(feature.data, np.int8).reshape(1, 49, 10, 1))
            executor.set_input(0, np.frombuffer(feature.data, np.int8).reshape(1, 49, 10, 1))
            executor.module.function("set_input")
            executor.run()
            assert executor.get_output(0).tobytes().hex() == "808080808080808080698097"
    sync = messages.encode(messages.SystemCall(messages.Code.STREAM_SYNC, (Device(1, 0), Handle(0))))
    assert set(stream.asked) == expected - {sync}
    assert logs[0] == "DumpMetadata:"
    assert len(logs) == 59
