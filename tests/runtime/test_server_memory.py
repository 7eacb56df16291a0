"""The memory of a server: copies, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from crtgen.base.errors import RemoteError
from crtgen.device.rpc.client import Client
from crtgen.device.rpc.messages import (
    CallFunc,
    Code,
    CopyFromRemote,
    CopyToRemote,
    Return,
    SystemCall,
    encode,
)
from crtgen.device.rpc.values import DataType, Device, Handle, Tensor
from tests.runtime.conftest import POOL, Serve
from tests.runtime.raw import Raw, byte_tensor

pytestmark = pytest.mark.cc


@pytest.mark.parametrize("receive", [256, 300, 2048, 4096, 65536])
def test_copies_survive_any_buffer(serve: Serve, receive: int) -> None:
    data = np.random.default_rng(1).integers(250, 256, (4, 1000), np.uint8)
    with Client(serve("models", receive)) as client, client.allocate(data.shape, data.dtype) as tensor:
        assert client.max_packet == receive - 11
        tensor.write(data)
        np.testing.assert_array_equal(tensor.read(), data)


def test_a_full_pool_says_what_is_free(client: Client) -> None:
    text = r"no room for 97 bytes: 96 of 16384 are free, 1 of 32 blocks in use; --pool sets both"
    with client.allocate((POOL - 96,), np.uint8), pytest.raises(RemoteError, match=text):
        client.allocate((97,), np.uint8)
    client.allocate((POOL,), np.uint8).close()


def test_a_new_session_finds_the_pool_empty(client: Client) -> None:
    client.allocate((POOL,), np.uint8)
    client.connect()
    client.allocate((POOL,), np.uint8).close()


def test_wild_addresses_are_refused(raw: Raw) -> None:
    block = raw.allocate(100)
    fill = raw.handle("tvm.contrib.random.random_fill")
    wild = [
        *((0, 0, 1), (block, 0, 101), (block, 100, 1), (block - 1, 0, 1), (block, 2**64 - 1, 1)),
        *((block + 101, 0, 0), (2**64 - 16, 32, 8), (2**64 - 1, 0, 1), (0x2000_0000, 0, 4)),
        *((block ^ 2**63, 0, 1), (block, 50, 51)),
    ]
    for data, offset, size in wild:
        tensor = byte_tensor(data, size, offset=offset)
        assert "neither allocated nor" in raw.refused(encode(CopyToRemote(tensor, bytes(size))))
        assert "neither allocated nor" in raw.refused(encode(CopyFromRemote(tensor, size)))
        assert "neither allocated nor" in raw.refused(encode(CallFunc(fill, (tensor,))))
        good = byte_tensor(block, size)
        for pair in ((tensor, good), (good, tensor)):
            text = raw.refused(encode(SystemCall(Code.COPY_AMONG_REMOTE, (*pair, None))))
            assert "neither allocated nor" in text
    for size in (2**32, 2**63, 2**64 - 1):
        assert "neither allocated nor" in raw.refused(encode(CopyFromRemote(byte_tensor(block, 1), size)))
    for address in (0, 1, block + 1, block - 1, 2**64 - 1):
        free = SystemCall(Code.FREE_DATA, (Device(), Handle(address)))
        assert "no block of memory was allocated" in raw.refused(encode(free))
    for address in (1, block - 1, block + 101, 2**64 - 1):
        assert "neither allocated nor" in raw.refused(encode(CallFunc(fill, (Handle(address),))))
    assert raw.ask(encode(SystemCall(Code.FREE_DATA, (Device(), Handle(block))))) == Return((None,))
    assert "neither allocated nor" in raw.refused(encode(CopyFromRemote(byte_tensor(block, 1), 1)))


def test_constants_that_were_handed_out_are_read_and_never_written(client: Client) -> None:
    library = client.system_lib()
    address = library.function("toy_constant")()
    constant = Tensor(address.value, (8,), DataType.of(np.int8))
    assert client.copy_from(constant).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    with pytest.raises(RemoteError, match="neither allocated nor"):
        client.copy_from(replace(constant, byte_offset=1))
    refused = "8 bytes at 0x.* are of a constant, which is only read"
    with pytest.raises(RemoteError, match=refused):
        client.copy_to(constant, np.zeros(8, np.int8))
    client.copy_to(constant, np.arange(1, 9, dtype=np.int8))  # as hosts load parameters that are linked
    with pytest.raises(RemoteError, match=refused):
        client.function("tvm.contrib.random.random_fill")(constant)
    x = np.zeros(8, np.int8)
    for arguments in ((x, x, constant), (constant, x, x)):  # nobody says what it only reads
        with pytest.raises(RemoteError, match=refused):
            library.function("toy_add")(*arguments)
    with pytest.raises(RemoteError, match="no block of memory"):
        client.free(constant)
    assert client.copy_from(constant).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_sizes_that_overflow_are_refused(raw: Raw) -> None:
    block = raw.allocate(16)
    fill = raw.handle("tvm.contrib.random.random_fill")
    for shape in ((2**32,), (2**32, 2**32), (65536, 65536), (-1,), (-(2**63), 2), (2**31, 2, 2**40)):
        tensor = byte_tensor(block, *shape)
        assert "negative extent, or 4 GiB" in raw.refused(encode(CallFunc(fill, (tensor,))))
        scoped = SystemCall(Code.ALLOC_DATA_WITH_SCOPE, (byte_tensor(0, *shape), None))
        assert "negative extent, or 4 GiB" in raw.refused(encode(scoped))
    for size, align in ((-1, 16), (2**32, 16), (2**63 - 1, 16), (8, 3), (8, -16), (8, 2**62)):
        alloc = SystemCall(Code.ALLOC_DATA, (Device(), size, align, DataType.of(np.uint8)))
        assert "no power of two" in raw.refused(encode(alloc))


def test_copy_on_the_device(raw: Raw) -> None:
    a, b = raw.allocate(8), raw.allocate(8)
    assert raw.ask(encode(CopyToRemote(byte_tensor(a, 8), b"01234567"))) == Return((None,))
    among = SystemCall(Code.COPY_AMONG_REMOTE, (byte_tensor(a, 6), byte_tensor(b, 6, offset=2), Handle(0)))
    assert raw.ask(encode(among)) == Return((None,))
    reply = raw.ask(encode(CopyFromRemote(byte_tensor(b, 8, offset=2), 6)))
    assert getattr(reply, "data", None) == b"012345"
    text = raw.refused(
        encode(SystemCall(Code.COPY_AMONG_REMOTE, (byte_tensor(a, 6), byte_tensor(b, 5), None)))
    )
    assert text == "a copy from a tensor of 6 bytes to one of 5"
