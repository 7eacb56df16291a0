"""What start-up code does on chips of other revisions, behind boot loaders, and with other flashes."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import unicorn
from unicorn import arm_const as arm
from unicorn.unicorn_py3.unicorn import Uc

from crtgen.boards import Board, all_boards, all_steps, find_board
from crtgen.firmware.builder import binary, read_content
from crtgen.firmware.project.protection import regions
from tests.silicon.machine import Machine

pytestmark = pytest.mark.qemu

Images = Callable[[str], Path]

_VARIANT, _REVISION = 0x00FF_0130, 0x00FF_0134
_ERRATUM_160 = {
    0x5000_470C: 0x7E,
    0x5000_493C: 0x7E,
    0x5000_2118: 0x7F,
    0x5003_9E04: 0,
    0x5003_9E08: 0,
    0x5010_1110: 0,
    0x5000_2124: 0,
    0x5000_212C: 0,
    0x5020_12A0: 0,
}
"""What the system_nrf5340_application.c of Nordic's MDK writes, and where."""


def started(image: Images, board: str, values: dict[int, int]) -> Machine:
    """A board whose registers had these values, at its first sleep."""
    machine = Machine(find_board(board), image(board), None)
    machine.values.update(values)
    machine.run()
    return machine


def written(machine: Machine, address: int) -> list[int]:
    return [each.value for each in machine.writes if each.address == address]


@pytest.mark.parametrize("empty", [0xFFFF_FFFF, 0])
def test_trims_of_the_factory_are_copied_up_to_the_first_that_is_empty(toy_image: Images, empty: int) -> None:
    pairs = (0x5000_4A00, 0x1234, 0x5000_4A04, 0x5678, empty, empty, 0x5000_4A08, 0x9ABC)
    trims = {0x00FF_0300 + 4 * n: word for n, word in enumerate(pairs)}
    machine = started(toy_image, "nrf5340dk", trims)
    assert [(w.address, w.value) for w in machine.writes if w.address >> 8 == 0x5000_4A] == [
        (0x5000_4A00, 0x1234),
        (0x5000_4A04, 0x5678),
    ]


@pytest.mark.parametrize(("revision", "concerns"), [(1, True), (2, False), (9, False)])
def test_errata_31_and_40_of_the_nrf54l15_by_revision(
    toy_image: Images, revision: int, concerns: bool
) -> None:
    """As nrf54l_erratas.h of Nordic's MDK. A debug port that is locked stays as it is."""
    found = {0x00FF_C340: 0x1C, 0x00FF_C344: revision, 0x5012_063C: 0xFFFF_FFFF, 0x500D_C500: 0x12}
    machine = started(toy_image, "nrf54l15dk", found)
    assert written(machine, 0x5012_0624) == ([0x34] if concerns else [])
    assert written(machine, 0x5012_063C) == ([0xFFF7_FFFF] if concerns else [])
    assert written(machine, 0x5008_A7AC) == ([0x040A_0078] if concerns else [])
    assert written(machine, 0x500D_C500) == []
    assert written(machine, 0x500D_C508) == [0x50FA_00F0, 0x50FA_0001]


@pytest.mark.parametrize(("revision", "concerns"), [(2, False), (4, False), (5, True), (9, True)])
def test_erratum_160_of_the_nrf5340_by_revision(toy_image: Images, revision: int, concerns: bool) -> None:
    machine = started(toy_image, "nrf5340dk", {_VARIANT: 7, _REVISION: revision})
    found = {w.address: w.value for w in machine.writes if w.address in _ERRATUM_160}
    assert found == (_ERRATUM_160 if concerns else {})


def test_erratum_160_is_left_alone_on_a_chip_that_the_mdk_does_not_know(toy_image: Images) -> None:
    machine = started(toy_image, "nrf5340dk", {_VARIANT: 8, _REVISION: 5})
    assert not {w.address for w in machine.writes} & set(_ERRATUM_160)


@pytest.mark.parametrize("calibrated", [False, True])
def test_erratum_140_of_the_nrf5340_after_a_reset_in_calibration(toy_image: Images, calibrated: bool) -> None:
    values = {_VARIANT: 7, _REVISION: 5, 0x5003_2420: 0x8000_0000 if calibrated else 0}
    machine = started(toy_image, "nrf5340dk", values)
    assert written(machine, 0x5000_5518) == ([3, 1] if calibrated else [])  # LFCLKSRC: LFSYNT, LFRC
    assert written(machine, 0x5000_5008) == ([1] if calibrated else [])  # TASKS_LFCLKSTART


@pytest.mark.parametrize(
    ("identity", "is_y"),
    [(0x1001_6450, True), (0x1003_6450, True), (0x2001_6450, False), (0x2003_6450, False)],
)
def test_reads_of_the_axi_sram_on_old_revisions_of_the_h743(
    toy_image: Images, identity: int, is_y: bool
) -> None:
    """ES0392, 2.2.9: revisions Z and Y want READ_ISS_OVERRIDE; X and V do not."""
    machine = started(toy_image, "nucleo_h743zi", {0x5C00_1000: identity})
    assert written(machine, 0x5100_8108) == ([1] if is_y else [])


@pytest.mark.parametrize(
    ("board", "running", "selected", "pll", "divider"),
    [
        # Clock control with the PLL on, the switch to the PLL, and the register of the PLL's factors.
        ("nucleo_f746zg", (0x4002_3800, 0x0300_0083), (0x4002_3808, 0x940A), 0x0100_0000, 0x4002_3804),
        ("nucleo_h743zi", (0x5802_4400, 0x0300_0025), (0x5802_4410, 0x1B), 0x0100_0000, 0x5802_4430),
        ("disco_l475_iot1", (0x4002_1000, 0x0300_0563), (0x4002_1008, 0xF), 0x0100_0000, 0x4002_100C),
        ("nucleo_u575zi_q", (0x4602_0C00, 0x0300_0535), (0x4602_0C1C, 0xF), 0x0100_0000, 0x4602_0C34),
    ],
)
def test_a_pll_that_a_boot_loader_left_on_is_off_before_it_is_changed(
    toy_image: Images,
    board: str,
    running: tuple[int, int],
    selected: tuple[int, int],
    pll: int,
    divider: int,
) -> None:
    machine = started(toy_image, board, dict([running, selected]))
    places = [(w.address, w.value & pll) for w in machine.writes if w.address in (running[0], divider)]
    factors = places.index(next(place for place in places if place[0] == divider))
    before = [value for address, value in places[:factors] if address == running[0]]
    assert before[-1] == 0
    switches = [w.value & 3 for w in machine.writes if w.address == selected[0]]
    assert switches[0] != 3  # away from the PLL
    assert switches[-1] == machine.values[selected[0]] & 3


def test_interrupts_and_the_timer_that_a_boot_loader_left_on_are_off(toy_image: Images) -> None:
    machine = started(toy_image, "nrf52840dk", {})
    first = [w.address for w in machine.writes].index(0xE000_E010)
    assert machine.writes[first].value == 0
    cleared = {w.address for w in machine.writes if w.value == 0xFFFF_FFFF}
    assert {0xE000_E180 + 4 * n for n in range(16)} | {0xE000_E280 + 4 * n for n in range(16)} <= cleared


def test_the_4_kib_below_the_stack_of_the_k64_are_the_cores_no_more(toy_image: Images) -> None:
    """SYSMPU: region 0 lets the core do nothing, regions 1 and 2 are all but the guard."""
    machine = started(toy_image, "frdm_k64f", {0x4000_D800: 0x0061_F7DF, 0x4000_D000: 0x0081_5101})
    held = machine.values
    assert held[0x4000_D800] == 0x0061_F7D8
    allowed = [
        (held[at], held[at + 4], held[at + 8] & 0x1F, held[at + 12]) for at in (0x4000_D410, 0x4000_D420)
    ]
    assert allowed == [(0, 0x1FFF_EFFF, 0x1F, 1), (0x2000_0000, 0xFFFF_FFFF, 0x1F, 1)]
    guard = range(0x1FFF_F000, 0x2000_0000)
    assert all(memory.end <= guard.start or memory.origin >= guard.stop for memory in machine.board.memories)


CACHED = [
    b for b in all_boards() if b.core.has_caches and b.core.arch == "armv7e-m" and "baremetal" in b.platforms
]


@pytest.mark.parametrize("board", CACHED, ids=lambda board: board.name)
def test_ram_of_a_cortex_m7_is_not_shared(board: Board) -> None:
    """Its data cache holds no memory that is: Cortex-M7 TRM, 5.2.2. TEX 1, S 0, C 1, B 1: write-back."""
    rams = [int(r.attributes.rstrip("u"), 16) >> 16 & 0x3F for r in regions(board) if "write" in r.text][:-1]
    assert rams
    assert set(rams) == {0b001_0_1_1}


class QspiFlash:
    """The status registers of a flash at the SSI of RP2040. ``keeps`` are the bits that the second has."""

    def __init__(self, second: int, keeps: int) -> None:
        self.second, self.keeps = second, keeps
        self.frame: list[int] = []
        self.answers: list[int] = []
        self.commands: list[tuple[int, ...]] = []
        self.may_write = False
        self.registers: dict[int, int] = {}

    def write(self, offset: int, value: int) -> None:
        if offset != 0x60:
            self.registers[offset] = value
            if offset == 0x08:
                self.answers.clear()
            return
        self.frame.append(value)
        command = self.frame[0]
        self.answers.append(self.second if command == 0x35 and len(self.frame) > 1 else 0)

    def read(self, offset: int) -> int:
        if offset == 0x28:  # all is sent: the frame ends
            if self.frame:
                self._end(tuple(self.frame))
            self.frame = []
            return 0x4
        if offset == 0x60:
            return self.answers.pop(0) if self.answers else 0
        return self.registers.get(offset, 0)

    def _end(self, frame: tuple[int, ...]) -> None:
        self.commands.append(frame)
        if frame == (0x06,):
            self.may_write = True
        elif frame[0] == 0x01 and self.may_write and len(frame) == 3:
            self.second, self.may_write = frame[2] & self.keeps, False


def boot_rp2040(image: Path, flash: QspiFlash) -> None:
    """Run the first 256 bytes in RAM, as the boot ROM does, up to the reset handler."""
    code = binary(read_content(image))
    uc = Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
    uc.ctl_set_cpu_model(arm.UC_CPU_ARM_CORTEX_M0)
    uc.mem_map(0x2004_1000, 0x1000)
    uc.mem_write(0x2004_1F00, code[:256])
    uc.mem_map(0x1000_0000, 0x10_0000)
    uc.mem_write(0x1000_0000, code)
    uc.mem_map(0x4002_0000, 0x1000)
    uc.mem_map(0xE000_E000, 0x1000)
    uc.mmio_map(
        0x1800_0000,
        0x1000,
        lambda uc, offset, size, data: flash.read(offset),
        None,
        lambda uc, offset, size, value, data: flash.write(offset, value),
        None,
    )
    stack, reset = struct.unpack_from("<II", code, 256)
    uc.reg_write(arm.UC_ARM_REG_SP, 0x2004_1F00)
    uc.emu_start(0x2004_1F01, reset & ~1, count=2_000_000)
    assert uc.reg_read(arm.UC_ARM_REG_PC) == reset & ~1
    assert uc.reg_read(arm.UC_ARM_REG_SP) == stack
    assert struct.unpack("<I", uc.mem_read(0xE000_ED08, 4)) == (0x1000_0100,)


@pytest.mark.parametrize(
    ("second", "keeps", "writes", "mode"),
    [
        (0x02, 0xFF, [], 0xA000_2022),  # a flash that had the bit
        (0x42, 0xFF, [], 0xA000_2022),  # and others, which are left alone
        (0x00, 0xFF, [(0x01, 0x00, 0x02)], 0xA000_2022),  # it is set, once
        (0x00, 0x00, [(0x01, 0x00, 0x02)], 0x0300_0218),  # there is no such bit: plain 03h
        (0xFF, 0xFF, [(0x01, 0x00, 0x02)], 0xA000_2022),  # nothing answered at first
    ],
)
def test_the_pico_reads_flashes_with_and_without_the_bit_for_four_bits(
    toy_image: Images, second: int, keeps: int, writes: list[tuple[int, ...]], mode: int
) -> None:
    flash = QspiFlash(second, keeps)
    boot_rp2040(toy_image("rpi_pico"), flash)
    assert [frame for frame in flash.commands if frame[0] == 0x01] == writes
    assert flash.registers[0xF4] == mode  # SPI_CTRLR0
    assert flash.registers[0x00] == (0x005F_0300 if mode >> 24 == 0xA0 else 0x001F_0300)  # CTRLR0
    assert flash.registers[0x14] == (2 if mode >> 24 == 0xA0 else 4)  # 03h is not for the fastest clock
    assert flash.registers[0x08] == 1
    reads = [frame for frame in flash.commands if frame == (0xEB, 0xA0)]
    assert len(reads) == (mode >> 24 == 0xA0)


def test_caches_that_a_boot_loader_left_on_lose_nothing(toy_image: Images) -> None:
    """Lines of a data cache that runs are written back (DCCISW), those of one that does not are dropped."""
    drops = {}
    for running in (0, 1 << 16):
        machine = started(toy_image, "nucleo_h743zi", {0xE000_ED14: running})
        addresses = [w.address for w in machine.writes]
        drops[running] = {0xE000_EF60, 0xE000_EF74} & set(addresses)
        last = max(at for at, address in enumerate(addresses) if address in drops[running])
        assert addresses.index(0xE000_EF50) > last  # ICIALLU: code is read from memory afterwards
    assert drops == {0: {0xE000_EF60}, 1 << 16: {0xE000_EF74}}


@pytest.mark.parametrize("name", ["b_u585i_iot02a", "nucleo_l552ze_q", "nucleo_u575zi_q"])
def test_flash_waits_before_the_clock_rises(name: str) -> None:
    """A reset leaves them at 4 MHz, in a voltage range whose flash keeps up with 8 MHz (ST's LL drivers)."""
    registers = [step.register for step in all_steps(find_board(name).start)]
    assert registers.index("FLASH.ACR") < registers.index("RCC.CFGR1" if "u5" in name else "RCC.CFGR")
