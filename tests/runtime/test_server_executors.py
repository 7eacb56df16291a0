"""The executors of a server: models, also those that share an arena."""

import numpy as np
import pytest

from crtgen.base.errors import RemoteError
from crtgen.device.rpc.client import Client, Timeouts
from crtgen.device.rpc.messages import CallFunc, CopyToRemote, Packet, RemoteException, Return, encode
from crtgen.device.rpc.values import Handle, Tensor, TypeCode
from tests.runtime import tvm_host
from tests.runtime.conftest import Serve
from tests.runtime.raw import Raw

pytestmark = pytest.mark.cc


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
            ("set_input", (0, np.zeros(5, np.int8)), "a has 6 bytes"),
            ("set_input", (0, np.zeros(6, np.uint8)), "a has 6 bytes, or another type"),
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
        with client.allocate((4,), np.int16) as taken:
            assert executor.module.function("get_output")(0, taken) is None
            assert taken.read().tolist() == [2, 4, 6, 8]
        with (
            client.allocate((8,), np.int8) as other,
            pytest.raises(RemoteError, match="y has 8 bytes, or another type"),
        ):
            executor.module.function("get_output")(0, other)
        with pytest.raises(RemoteError, match="used up: set all 1 of them; --keep-inputs keeps them"):
            executor.run()
        executor.module.function("set_input")("x", x)
        executor.run()
        assert executor.get_output(0).tolist() == [2, 4, 6, 8]


def test_reset_is_that_of_the_model(client: Client) -> None:
    """``once`` has one, which sets its data to zero; ``add`` keeps nothing, and has none."""
    with client.aot_executor("once") as executor:
        executor.set_input(0, np.array([1, 2, 3, 4], np.int16))
        executor.run()
        executor.reset()
        assert executor.get_output(0).tolist() == [0, 0, 0, 0]
    with client.aot_executor("add") as executor:
        executor.reset()


@pytest.mark.parametrize("size", [20, 2048, 60_000])
def test_graph_executors_are_that_of_the_only_model(serve: Serve, size: int) -> None:
    """Hosts send the graph, which is in the image already: it may be longer than the receive buffer."""
    with Client(serve("captured"), timeouts=Timeouts(5, 60, 60)) as client:
        for _ in range(2):
            module = tvm_host.create(client, '{"nodes": []}'.ljust(size), client.system_lib())
        assert module.optional == []
        assert module.function("get_num_inputs")() == 1
        x = np.zeros((1, 49, 10, 1), np.int8)
        module.set_input(0, x)
        module.run()
        assert module.get_output(0)[0].tolist() == [*[-128] * 9, 105, -128, -105]
        for name, text in (
            ("load_params", "are linked: they cannot be loaded or shared"),
            ("share_params", "are linked: they cannot be loaded or shared"),
            ("get_input_info", "a map cannot be sent: get_input gives an input with shape and type"),
        ):
            with pytest.raises(RemoteError, match=text):
                module.function(name)()


@pytest.mark.parametrize("size", [2, 60_000])
def test_an_image_of_several_models_has_no_graph_executor(client: Client, size: int) -> None:
    with pytest.raises(RemoteError, match=r"the image has 3 models: tvm.aot_executor.create takes a name"):
        tvm_host.create(client, "x" * size, client.system_lib())
    info = client.info()
    assert info is not None
    assert info.models == ("add", "once", "broken")


@pytest.fixture
def shared(serve: Serve) -> Client:
    connection = Client(serve("shared"), timeouts=Timeouts(5, 60, 60))
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


def test_a_copy_counts_for_the_model_whose_input_it_is(shared: Client) -> None:
    """Hosts keep the tensors of inputs. ``half`` has the one of ``next``: either can be meant, unless one of
    them holds the arena."""
    with (
        shared.aot_executor("next") as one,
        shared.aot_executor("half") as same,
        shared.aot_executor("wide") as other,
    ):
        place, wide = one.input(0), other.input(0)
        place.write(np.array([1, 2, 3, 4], np.int8))
        one.run()
        wide.write(np.arange(8, dtype=np.int8))
        with pytest.raises(RemoteError, match="the outputs of next are void"):
            one.get_output(0)
        with pytest.raises(RemoteError, match="the inputs of next are not set"):
            one.run()
        other.run()
        assert other.get_output(0).tolist() == [2, 3, 4, 5, 6, 7, 8, 9]
        place.write(np.array([5, 6, 7, 8], np.int8))
        with pytest.raises(RemoteError, match="the inputs of wide are not set"):
            other.run()
        one.run()
        assert one.get_output(0).tolist() == [6, 7, 8, 9]
        with pytest.raises(RemoteError, match="the inputs of half are not set"):
            same.run()
        place.write(np.array([2, 4, 6, 8], np.int8))
        with pytest.raises(RemoteError, match="the inputs of half are not set"):
            same.run()
        other.input(0)
        place.write(np.array([2, 4, 6, 8], np.int8))
        same.run()
        assert same.get_output(0).tolist() == [1, 2, 3, 4]
        with pytest.raises(RemoteError, match="the inputs of next are not set"):
            one.run()


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
