"""The driver of the NPU on simulated registers: an unmodified image whose core is Unicorn's, and the model as
a device.

QEMU hands jobs to the model before the driver touches a register; here it is the driver that does everything.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from elftools.elf.elffile import ELFFile

from crtgen import api
from crtgen.api import Image
from crtgen.base.errors import CrtgenError
from crtgen.boards import Board, find_board, find_core
from crtgen.compiler.byoc import read_generator
from crtgen.device.rpc.client import SIMULATOR, Client
from crtgen.device.session import Session
from crtgen.lab.measure.verification import verify
from crtgen.npu.config import CONFIGS
from crtgen.npu.device import NpuDevice
from crtgen.npu.stream import commands
from tests.silicon.machine import Machine
from tests.support import ROOT, symbol_table

pytest.importorskip("ethosu")
pytestmark = pytest.mark.qemu

_DIGITS = ROOT / "demo" / "digits.tflite"
_CASES = ROOT / "demo" / "digits.npz"


class _MachineBus:
    """The memories of a machine, each read when the NPU first looks into it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.held: dict[int, npt.NDArray[np.uint8]] = {}

    def view(self, address: int) -> npt.NDArray[np.uint8] | None:
        for memory in self.machine.board.memories:
            if memory.origin <= address < memory.end:
                if memory.origin not in self.held:
                    data = self.machine.uc.mem_read(memory.origin, memory.size)
                    self.held[memory.origin] = np.frombuffer(data, np.uint8).copy()
                return self.held[memory.origin][address - memory.origin :]
        return None

    def written(self) -> None:
        for origin, data in self.held.items():
            self.machine.uc.mem_write(origin, data.tobytes())
        self.held.clear()


def _board() -> Board:
    """MPS3 with a core that Unicorn has, and without the mailbox of QEMU."""
    small = {"ram": 1 << 19, "code": 1 << 19, "ddr": 1 << 19}
    board = find_board("mps3_an547")
    memories = tuple(replace(m, size=small.get(m.name, m.size)) for m in board.memories)
    return replace(board, core=find_core("cortex-m33"), qemu=None, memories=memories, slots=None)


@cache
def _image(config: str = "ethos-u55-128", scratch: str = "") -> Image:
    npu = read_generator(f"ethos-u:config={config}")
    place = {"npu": scratch} if scratch else {}
    compiled = api.load(_DIGITS).compile(_board(), generators=[npu], fallback=True, place=place)
    return compiled.generate("server").build()


@contextmanager
def _session(image: Image | None = None, **flaws: Any) -> Iterator[tuple[Session, Machine, NpuDevice]]:
    """The image behind its start, with an NPU; ``config`` is another one than the image is for."""
    image = image or _image()
    machine = Machine(_board(), image.path, None)
    config = CONFIGS[flaws.pop("config", "ethos-u55-128")]
    device = machine.npu = NpuDevice(config, _MachineBus(machine), **flaws)
    machine.run()
    client = Client(machine, timeouts=SIMULATOR)
    with Session(image.built, cast(Any, nullcontext(machine)), client, counting=False) as session:
        yield session, machine, device


def _failure(session: Session) -> str:
    """Report of the device on one run."""
    with pytest.raises(CrtgenError) as caught:
        verify(session, _DIGITS, _CASES, 1)
    return str(caught.value)


def test_every_output_is_as_recorded() -> None:
    with _session() as (session, _, device):
        verdicts = verify(session, _DIGITS, _CASES, 3)
        assert [verdict.difference for verdict in verdicts] == [None] * len(verdicts)
        assert device.runs >= 3
        assert not device.interrupts  # the driver cleared it
    assert len(_symbols("crt_npu_for_ethos_u55_128")) == 1, "which tells an FVP its NPU"


@pytest.mark.parametrize("config", ["ethos-u55-128", "ethos-u65-256"])
def test_scratch_in_another_memory(config: str) -> None:
    """A U55 has all of it there, a U65 a part; the arena's bytes behind the model's values are left alone."""
    image = _image(config, "ddr")
    with _session(image, config=config) as (session, machine, device):
        assert all(v.difference is None for v in verify(session, _DIGITS, _CASES, 2))
        assert device.failure is None
        (ddr,) = (m for m in machine.board.memories if m.name == "ddr")
        with image.path.open("rb") as file:
            symbols = {s.name: s for s in symbol_table(ELFFile(file)).iter_symbols()}
        place, size = (symbols["digits_arena_npu"][key] for key in ("st_value", "st_size"))
        assert ddr.origin <= place < place + size <= ddr.end
        assert any(machine.uc.mem_read(place, size)), "the NPU worked there"


def test_a_u55_cannot_write_through_its_second_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with _session() as (session, _, device):
        write = device.write
        monkeypatch.setattr(device, "write", lambda at, value: write(at, 0xAAAA if at == 0x3C else value))
        assert "failed with code -2" in _failure(session)
        assert device.failure is not None


def test_another_configuration() -> None:
    with _session(config="ethos-u55-256") as (session, _, device):
        assert "failed with code -21" in _failure(session)
        assert device.runs == 0


@pytest.mark.nightly
def test_a_reset_that_does_not_end() -> None:
    with _session(is_stuck=True) as (session, _, device):
        assert "failed with code -22" in _failure(session)
        assert device.runs == 0


def _symbol(name: str) -> int:
    (place, _), *_ = _symbols(name)
    return place


def _symbols(name: str) -> list[tuple[int, int]]:
    """Address and size of each symbol that ends so."""
    with _image().path.open("rb") as file:
        symbols = symbol_table(ELFFile(file)).iter_symbols()
        return [(int(s["st_value"]), int(s["st_size"])) for s in symbols if s.name.endswith(name)]


def test_an_interrupt_that_never_comes() -> None:
    with _session(is_silent=True) as (session, machine, _):
        machine.uc.mem_write(_symbol("crt_npu_limit"), (20_000).to_bytes(4, "little"))
        assert "failed with code -23" in _failure(session)


def test_a_command_that_the_npu_does_not_know() -> None:
    """The model goes on to run once the stream is whole again: the driver resets the NPU."""
    with _session() as (session, machine, device):
        place = _symbol("_stream")
        good = bytes(machine.uc.mem_read(place, 4))
        machine.uc.mem_write(place, b"\xff\x03\x00\x00")
        assert "failed with code -25" in _failure(session)
        assert device.failure is not None
        assert device.failure.offset == 0
        machine.uc.mem_write(place, good)
        assert all(verdict.difference is None for verdict in verify(session, _DIGITS, _CASES))


def test_a_stream_that_is_cut() -> None:
    with _session() as (session, machine, device):
        ((place, size),) = _symbols("_stream")
        last = place + size - 4
        assert bytes(machine.uc.mem_read(last, 4)) == b"\x00\x00\xff\xff"
        machine.uc.mem_write(last, bytes(4))
        assert "failed with code -26" in _failure(session)
        assert device.runs == 0


def test_an_address_where_no_memory_is() -> None:
    with _session() as (session, machine, device):
        ((place, size),) = _symbols("_stream")
        data = bytes(machine.uc.mem_read(place, size))
        first = next(c.offset for c in commands(data) if c.name == "IFM_BASE0")
        machine.uc.mem_write(place + first + 4, (0xF000_0000).to_bytes(4, "little"))
        assert "failed with code -24" in _failure(session)
        assert device.failure is not None
        assert device.failure.is_bus
