"""Updates of a STM32L4 with error correction whose power is cut: it starts with a model, always."""

from dataclasses import replace

import pytest

import crtgen
from crtgen.api import Image
from crtgen.api.slot import make_slot, push
from crtgen.boards import FLASH_DRIVERS, Board, Slot, Slots, all_boards, find_board
from crtgen.compiler.codegen.slot_image import SlotImage
from crtgen.device.rpc.client import SIMULATOR, Client
from tests.silicon.torn import BOARD, PowerCut, TornFlash, TornH7, Updated
from tests.support import ROOT, nightly

pytestmark = pytest.mark.qemu

_SCRATCH = 0x2009_0000
"""RAM that the firmware does not use: what is written comes from there."""

_DAMAGED = -35

_Made = tuple[Image, tuple[SlotImage, SlotImage]]


@pytest.fixture(scope="module")
def made() -> _Made:
    """The firmware, and the same model for both slots."""
    compiled = crtgen.load(ROOT / "demo" / "digits.tflite").compile(board=BOARD)
    images = (make_slot(compiled, "a"), make_slot(compiled, "b"))
    return compiled.generate(slots=True).build(), images


def _version(chip: TornFlash, images: tuple[SlotImage, SlotImage]) -> int:
    """The version of the model that runs; bytes of its header are loaded plainly, as the firmware does."""
    assert not chip.was_reset, "the firmware resets itself: it would do so at each start"
    assert chip.active in (0, 1), "no model runs"
    return int.from_bytes(chip.uc.mem_read(images[chip.active].origin + 36, 4), "little")


class _Product:
    """A device that is updated again and again, and confirms what runs after it has seen it."""

    def __init__(self, chip: TornFlash, images: tuple[SlotImage, SlotImage]) -> None:
        self.chip, self.images = chip, images
        self.base = 1
        chip.uc.mem_write(images[0].origin, images[0].data)
        chip.boot()
        assert _version(chip, images) == 1

    def live(self) -> None:
        """From a start to the confirmation of a new model. Raises ``PowerCut`` where the power goes."""
        chip = self.chip
        chip.boot()
        runs = _version(chip, self.images)
        assert runs in (self.base, self.base + 1)
        if chip.is_on_trial and runs > self.base:
            assert chip.call("crt_slots_confirm", chip.slots) == 0
            self.base = runs
        other = 1 - chip.active
        if chip.call("crt_slots_begin", chip.slots, other) == 0:
            image = self._next(other)
            chip.uc.mem_write(_SCRATCH, image)
            assert chip.call("crt_slots_write", chip.slots, other, 0, _SCRATCH, len(image)) == 0
            assert chip.call("crt_slots_commit", chip.slots, other) == 0

    def live_on(self) -> None:
        """Until the power goes, which it has to."""
        for _ in range(20):
            self.live()

    def _next(self, slot: int) -> bytes:
        return replace(self.images[slot], version=self.base + 1).data


@pytest.mark.parametrize(
    ("cuts", "seed"), [(30, 0), nightly(2500, 1), nightly(2500, 2), nightly(2500, 3), nightly(2500, 4)]
)
def test_a_model_runs_after_each_cut(made: _Made, cuts: int, seed: int) -> None:
    """The power goes at erasings and writes of slots and of the log, and while the next start mends it."""
    image, images = made
    chip = TornFlash(image.path, seed)
    product = _Product(chip, images)
    for number in range(cuts):
        chip.log_only = number % 3 != 0
        chip.cut_in = chip.random.randint(1, 6 if chip.log_only else 1200)
        with pytest.raises(PowerCut):
            product.live_on()
    chip.cut_in = None
    base = product.base
    for _ in range(3):
        product.live()
    assert product.base >= base + 2, "it can be updated still"
    assert base > cuts / 20
    assert chip.nmis > cuts / 20
    print(f"{cuts} cuts, {chip.operations} erasings and writes, {chip.nmis} NMIs, {base} updates")


@pytest.mark.parametrize("place", ["log", "slot"])
def test_hosts_see_what_is_torn_and_mend_it(made: _Made, place: str) -> None:
    """By the serial port: which slot is damaged, a delta from it is refused, and the next push is taken."""
    image, images = made
    chip = TornFlash(image.path, seed=1)
    product = _Product(chip, images)
    chip.uc.mem_write(images[1].origin, images[1].data[:0x1000])
    chip.tear(chip.log + 0x10 if place == "log" else images[1].origin + 0x800)
    chip.boot()
    with Client(chip, timeouts=SIMULATOR) as client:
        state = client.slots()
        assert state is not None
        assert (state.active, state.places[0].status, state.places[1].status) == (0, 0, _DAMAGED)
        assert not push(client, images[1]).active
        state = client.slots()
        assert state is not None
        assert [each.status for each in state.places] == [0, 0]
    assert not chip.was_reset
    chip.boot()
    assert chip.active == 1
    assert product.base == 1


def _firmware(board: Board) -> Image:
    return crtgen.load(ROOT / "demo" / "digits.tflite").compile(board=board).generate(slots=True).build()


def test_a_bus_fault_of_a_torn_word_is_ignored_and_the_caches_know_what_was_erased() -> None:
    """A STM32H7: the start, the check of a slot, and its erasing, behind which no cache holds old bytes."""
    board = find_board("nucleo_h743zi")
    image = _firmware(board)
    chip = TornH7(board, image.path)
    assert board.slots is not None
    slot = board.slots.find("b")
    data = make_slot(crtgen.load(ROOT / "demo" / "digits.tflite").compile(board=board), "b").data
    chip.uc.mem_write(slot.origin, data)
    chip.tear(slot.origin + 0x400)
    chip.tear(chip.log + 32)
    chip.run()
    assert chip.call("crt_slots_check", chip.slots, 1) == _DAMAGED
    chip.writes.clear()
    assert chip.call("crt_slots_begin", chip.slots, 1) == 0
    last = max(n for n, write in enumerate(chip.writes) if write.address >> 12 == 0x52002)
    behind = [(write.address, write.value) for write in chip.writes[last:]]
    lines = [value for address, value in behind if address == 0xE000_EF70]
    assert lines == [*range(slot.origin, slot.end, 32)]
    assert (0xE000_EF50, 0) in behind[behind.index((0xE000_EF70, lines[-1])) :]
    assert chip.call("crt_slots_check", chip.slots, 1) == -32, "it is empty"


def _f4() -> Board:
    place = Slot("a", "flash", 0x0808_0000, 128 << 10)
    slots = Slots("stm32f4", (place,), 0x2001_8000, 4096, 0x080C_0000, 256 << 10, 3)
    return replace(find_board("netduinoplus2"), slots=slots)


@pytest.mark.parametrize(
    ("board", "register", "before", "written"),
    [
        # F4: both caches off, then reset, then on. K64F: ways and buffer of the controller's cache.
        (_f4(), 0x4002_3C00, 0x705, [0x105, 0x1905, 0x105, 0x705]),
        (find_board("frdm_k64f"), 0x4001_F004, 0x3002_001F, [0x30FA_001F]),
    ],
    ids=["stm32f4", "kinetis"],
)
def test_caches_of_the_flash_are_dropped_after_an_erasing(
    board: Board, register: int, before: int, written: list[int]
) -> None:
    image = _firmware(board)
    chip = Updated(board, image.path)
    chip.run()
    chip.writes.clear()
    chip.values[register] = before
    assert chip.call("crt_slots_begin", chip.slots, 0) == 0
    assert [each.value for each in chip.writes if each.address == register] == written


def test_each_driver_of_a_flash_says_what_torn_bytes_do() -> None:
    """Flash with error correction needs a careful read: of ST's families with slots, these."""
    assert {name for name, driver in FLASH_DRIVERS.items() if driver.torn} == {"stm32h7", "stm32l4"}
    for board in all_boards():
        if board.slots is not None and board.name.startswith(("nucleo_l4", "nucleo_h7")):
            assert FLASH_DRIVERS[board.slots.driver].torn
