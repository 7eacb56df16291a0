"""The server as a process, driven by crtgen's client: functions, time, and its end."""

import struct

import numpy as np
import pytest

from crtgen import __version__
from crtgen.base.errors import DeviceFault, RemoteError, SessionLostError
from crtgen.device.fault.record import REGISTERS
from crtgen.device.rpc.client import Client
from tests.runtime.conftest import POOL, Serve

pytestmark = pytest.mark.cc


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
    with Client(serve(), on_log=log.append) as client:
        with pytest.raises(DeviceFault) as caught:
            client.system_lib().function("toy_fault")()
        fault = caught.value
        assert fault.message == "bus error at 0x00000040, pc 0x1234abcd"
        assert fault.registers == {**dict.fromkeys(REGISTERS, 0), "r3": 7, "lr": 0x80, "pc": 0x1234ABCD}
        assert (fault.kind, fault.address, fault.uptime) == ("bus error", 0x40, 2.5)
        assert fault.status == ("PRECISERR: bus error",)
        with pytest.raises(SessionLostError, match="stopped at a fault"):
            client.info()
        client.connect()
        assert client.info() is not None
    assert log == ["fault in toy_fault: pc 0x1234abcd, lr 0x00000080, cfsr 0x00008200"]


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


def test_calibration(client: Client) -> None:
    assert client.ticks_per_second() == 1000
    assert client.calibrate(12345) == 24690
    with pytest.raises(RemoteError, match="1 to 400000000 loops"):
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
        # 4,879 of them are more than the 600 s that a request may take.
        with pytest.raises(RemoteError, match="a request may take 600 s"):
            client.time_evaluator(executor.module, number=10_000)
        with pytest.raises(RemoteError, match="a request may take 600 s"):
            client.time_evaluator(executor.module, min_repeat_ms=1_000_000)
        assert client.time_evaluator(executor.module, number=4_000) == (0.123,)
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
