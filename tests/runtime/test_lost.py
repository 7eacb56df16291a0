"""A line that loses bytes: copies are compared and repeated, a run is asked for by its number."""

from binascii import crc32

import numpy as np
import pytest

from crtgen.base.errors import RemoteError
from crtgen.device.rpc.client import SIMULATOR, Client
from crtgen.device.rpc.messages import CallFunc, CopyToRemote, Return, encode
from crtgen.device.rpc.values import Args, Handle, Tensor, TypeCode, Value
from tests.noise import KINDS, Noisy
from tests.runtime.conftest import POOL, Serve
from tests.runtime.raw import Raw

pytestmark = pytest.mark.cc


def test_crc32_is_that_of_zlib_and_stays_within_what_was_handed_out(client: Client) -> None:
    check = client.function("crtgen.crc32")
    data = np.random.default_rng(1).integers(0, 256, 999, np.uint8)
    with client.allocate(data.shape, data.dtype) as tensor:
        tensor.write(data)
        address = tensor.tensor.data
        assert check(address, 999, 0) == crc32(data.tobytes())
        assert check(address + 9, 990, 12345) == crc32(data[9:].tobytes(), 12345)
        for at, size in ((address, POOL + 1), (address, -1), (0, 1), (-1, 2), (address - 1, 1), (8, 1 << 40)):
            with pytest.raises(RemoteError, match="neither allocated nor a tensor of a model"):
                check(at, size, 0)
    assert check(0, 0, 0xFFFF_FFFE) == 0xFFFF_FFFE


def test_a_run_whose_answer_is_lost_is_not_repeated(serve: Serve) -> None:
    """The model doubles what it has in place: a second run would show."""
    line = Noisy(serve())
    with Client(line, timeouts=SIMULATOR) as client, client.aot_executor("once") as executor:
        for lost in (0, 1, 2):
            executor.set_input("x", np.array([1, 2, 3, -4], np.int16))
            line.lose = lost
            executor.run()
            assert line.lose == 0
            assert executor.get_output(0).tolist() == [2, 4, 6, -8]
        with pytest.raises(RemoteError, match="not set, or used up"):
            executor.run()
        line.lose = 1
        with pytest.raises(RemoteError, match="not set, or used up"):
            executor.run()


def test_a_run_that_failed_fails_again_without_running(serve: Serve) -> None:
    line = Noisy(serve())
    with Client(line, timeouts=SIMULATOR) as client, client.aot_executor("broken") as executor:
        line.lose = 1
        with pytest.raises(RemoteError, match="run of broken failed with code -3"):
            executor.run()


def test_a_number_of_another_session_means_nothing(raw: Raw) -> None:
    once = Handle(0x8002, TypeCode.MODULE)

    def called(name: str, *args: Value) -> Args:
        getter = raw.handle("tvm.rpc.server.ModuleGetFunction")
        found = raw.ask(encode(CallFunc(getter, (once, name, 1))))
        assert isinstance(found, Return)
        handle = found.args[1]
        assert isinstance(handle, Handle)
        answer = raw.ask(encode(CallFunc(handle.value, args)))
        return answer.args if isinstance(answer, Return) else (str(answer),)

    _, tensor, _ = called("get_input", 0)
    assert isinstance(tensor, Tensor)
    raw.ask(encode(CopyToRemote(tensor, bytes(8))))
    nothing = (int(TypeCode.NULL), None)
    assert called("run", 5) == nothing == called("run", 5)
    raw.start()
    assert "not set, or used up" in str(called("run", 5))


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_come_through_noise_as_they_are(serve: Serve, kind: str) -> None:
    line = Noisy(serve(), kind, seed=3)
    data = np.random.default_rng(2).integers(0, 256, 12_000, np.uint8)
    with Client(line, timeouts=SIMULATOR) as client, client.allocate(data.shape, data.dtype) as tensor:
        line.rate = 3e-4
        for _ in range(3):
            tensor.write(data)
            assert np.array_equal(tensor.read(), data)
        assert line.damaged > 10
        line.rate = 0


def test_a_damage_that_no_packet_shows_is_found(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that keeps a packet's CRC: what the device has is compared, and copied again."""
    line = Noisy(serve())
    data = np.arange(100, dtype=np.uint8)
    with Client(line, timeouts=SIMULATOR) as client, client.allocate(data.shape, data.dtype) as tensor:
        reads = iter([b"?" * 100])
        kept = client._read
        monkeypatch.setattr(client, "_read", lambda tensor: next(reads, None) or kept(tensor))
        tensor.write(data)
        assert np.array_equal(tensor.read(), data)
        assert next(reads, None) is None
