"""Streams that are damaged, cut, or from another NPU: an error with the offset of the command."""

import pytest

from crtgen.base.errors import UsageError
from crtgen.npu.config import CONFIGS, config_of_word, find_config
from crtgen.npu.errors import StreamError
from crtgen.npu.stream import commands
from tests.npu.streams import command, stream


def test_commands_have_offsets_and_values() -> None:
    read = list(commands(stream(("IFM_REGION", 2), ("IFM_BASE0", 0x1234, 5), ("DMA_WAIT", 0))))
    assert [(c.offset, c.name, c.value) for c in read] == [
        (0, "IFM_REGION", 2),
        (4, "IFM_BASE0", 0x5_0000_1234),
        (12, "DMA_WAIT", 0),
        (16, "STOP", 0xFFFF),
    ]


def test_nothing_behind_stop_is_read() -> None:
    assert len(list(commands(stream() + b"\xff" * 8))) == 1


@pytest.mark.parametrize(
    ("data", "offset", "text"),
    [
        (b"", 0, "ends without STOP"),
        (stream(("DMA_WAIT", 0))[:-4], 4, "ends without STOP"),
        (stream()[:-1], 3, "whole words"),
        (command("DMA_WAIT") + b"\x04\x00\x00\x00", 4, "0x00000004 is not a command"),
        (b"\x02\x04\x00\x00", 0, "0x00000402 is not a command"),
        (b"\x02\x00\x01\x00", 0, "CONV has the parameter 0x1; bits 0x1 are reserved"),
        (command("IFM_REGION", 8), 0, "bits 0x8 are reserved"),
        (command("OFM_BASE0", 0, 0x100), 0, "bits 0x100 are reserved"),
        (command("IFM_BASE0")[:4], 0, "the payload of IFM_BASE0 is missing"),
        (b"\xff\x43\x00\x00\x00\x00\x00\x00", 0, "not a command with a payload"),
        (b"\x00\x80\x00\x00\x00\x00\x00\x00", 0, "not a command with a payload"),
    ],
)
def test_what_is_wrong_is_said_with_its_offset(data: bytes, offset: int, text: str) -> None:
    with pytest.raises(StreamError, match=text) as caught:
        list(commands(data))
    assert caught.value.offset == offset
    assert f"at {offset:#x}" in str(caught.value)


def test_configurations() -> None:
    assert find_config("ethos-u55-128").word == 0x1807
    assert all(config_of_word(config.word) is config for config in CONFIGS.values())
    with pytest.raises(UsageError, match="ethos-u85-256 has other commands"):
        find_config("ethos-u85-256")
    with pytest.raises(UsageError, match="not the name of an NPU"):
        find_config("ethos")
    with pytest.raises(UsageError, match="0x00000000"):
        config_of_word(0)
