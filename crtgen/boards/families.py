"""Chip families that can be started without a board file: their internal oscillator, a UART and its pins.

A CMSIS pack describes neither. The addresses are from ST's reference manuals (RM0008, RM0090, RM0385, RM0444,
RM0440, RM0351, RM0433, RM0490, RM0438, RM0453); tests run a chip of each family on its SVD file. Every chip
of these families has both USARTs at these addresses, on these pins if its package has them: according to
embassy's stm32-data this holds for 789 chips.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from crtgen.base.errors import UsageError
from crtgen.boards.board import Board
from crtgen.boards.chip import RegisterStep

__all__ = ["FAMILIES", "Family", "Pins", "complete_text", "family_of"]

_MHZ = 1_000_000
# Flash address of every STM32.
_FLASH = 0x0800_0000


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins of a UART, such as ``PA2``: TX and RX. ``function`` is the number of the alternate
    function.
    """

    tx: str
    rx: str
    uart: str
    function: int = 7


@dataclass(frozen=True, slots=True)
class UartPort:
    base: int
    irq: int
    enable: str
    address: int
    bits: int


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Properties that all chips of ``names`` share. ``start`` switches back to the oscillator of ``clock``
    Hz.
    """

    title: str
    names: str
    uart: str
    clock: int
    start: tuple[RegisterStep, ...]
    ports: Mapping[str, UartPort]
    pins: tuple[Pins, ...]
    gpio: int
    enable: str
    address: int
    shift: int = 0
    openocd: str = ""


def _change(register: str, address: int, ones: int, zeros: int = 0, note: str = "") -> RegisterStep:
    return RegisterStep(register, address, "change", ones | zeros, ones, note=note)


def _wait(register: str, address: int, mask: int, value: int) -> RegisterStep:
    return RegisterStep(register, address, "wait", mask, value)


def _back(
    rcc: int, on: int, ready: int, switch: int, source: int, seen: tuple[int, int], note: str, off: int = 0
) -> tuple[RegisterStep, ...]:
    # To the internal oscillator, and the PLL off, whatever a boot loader left. ``switch`` is the offset of
    # CFGR, ``source`` what selects the oscillator, ``seen`` what then says so.
    return (
        _change("RCC.CR", rcc, on, off, f"{note}, whatever a boot loader left"),
        _wait("RCC.CR", rcc, ready, ready),
        RegisterStep("RCC.CFGR", rcc + switch, "write", 0xFFFF_FFFF, source),
        _wait("RCC.CFGR", rcc + switch, *seen),
        _change("RCC.CR", rcc, 0, 1 << 24, "PLL off"),
        _wait("RCC.CR", rcc, 1 << 25, 0),
    )


_HSI16 = "HSI 16 MHz"
_COMMON = (Pins("PA2", "PA3", "USART2"), Pins("PA9", "PA10", "USART1"), Pins("PB6", "PB7", "USART1"))


def _f4(title: str, names: str, uart: str, openocd: str) -> Family:
    return Family(
        title,
        names,
        uart,
        16 * _MHZ,
        _back(0x4002_3800, 0x1, 0x2, 0x08, 0, (0xC, 0), _HSI16),
        {
            "USART1": UartPort(0x4001_1000, 37, "RCC.APB2ENR", 0x4002_3844, 1 << 4),
            "USART2": UartPort(0x4000_4400, 38, "RCC.APB1ENR", 0x4002_3840, 1 << 17),
        },
        _COMMON,
        0x4002_0000,
        "RCC.AHB1ENR",
        0x4002_3830,
        openocd=openocd,
    )


def _l4(title: str, names: str, openocd: str) -> Family:
    return Family(
        title,
        names,
        "stm32_v2",
        16 * _MHZ,
        _back(0x4002_1000, 0x100, 0x400, 0x08, 1, (0xC, 0x4), _HSI16),
        {
            "USART1": UartPort(0x4001_3800, 37, "RCC.APB2ENR", 0x4002_1060, 1 << 14),
            "USART2": UartPort(0x4000_4400, 38, "RCC.APB1ENR1", 0x4002_1058, 1 << 17),
        },
        _COMMON,
        0x4800_0000,
        "RCC.AHB2ENR",
        0x4002_104C,
        openocd=openocd,
    )


_F1 = Family(
    "STM32F1",
    "STM32F10[01235-7]",
    "stm32_v1",
    8 * _MHZ,
    _back(0x4002_1000, 0x1, 0x2, 0x04, 0, (0xC, 0), "HSI 8 MHz"),
    {
        "USART1": UartPort(0x4001_3800, 37, "RCC.APB2ENR", 0x4002_1018, 1 << 14),
        "USART2": UartPort(0x4000_4400, 38, "RCC.APB1ENR", 0x4002_101C, 1 << 17),
    },
    _COMMON[:2],
    0x4001_0800,
    "RCC.APB2ENR",
    0x4002_1018,
    shift=2,
    openocd="target/stm32f1x.cfg",
)

_G0 = Family(
    "STM32G0",
    "STM32G0",
    "stm32_v2",
    16 * _MHZ,
    _back(0x4002_1000, 0x100, 0x400, 0x08, 0, (0x38, 0), _HSI16, off=0x3800),
    {
        "USART1": UartPort(0x4001_3800, 27, "RCC.APBENR2", 0x4002_1040, 1 << 14),
        "USART2": UartPort(0x4000_4400, 28, "RCC.APBENR1", 0x4002_103C, 1 << 17),
    },
    tuple(replace(pins, function=0 if pins.tx == "PB6" else 1) for pins in _COMMON),
    0x5000_0000,
    "RCC.IOPENR",
    0x4002_1034,
    openocd="target/stm32g0x.cfg",
)

_C0 = Family(
    "STM32C0",
    "STM32C0",
    "stm32_v2",
    12 * _MHZ,
    (
        _change("RCC.CR", 0x4002_1000, 0x100, 0, "HSI48, whatever a boot loader left"),
        _wait("RCC.CR", 0x4002_1000, 0x400, 0x400),
        RegisterStep("RCC.CFGR", 0x4002_1008, "write", 0xFFFF_FFFF, 0),
        _wait("RCC.CFGR", 0x4002_1008, 0x38, 0),
        _change("RCC.CR", 0x4002_1000, 0x1000, 0x2800, "a quarter of it: 12 MHz, as after a reset"),
    ),
    _G0.ports,
    _G0.pins,
    _G0.gpio,
    "RCC.IOPENR",
    0x4002_1034,
    openocd="target/stm32c0x.cfg",
)

_L5 = Family(
    "STM32L5",
    "STM32L5",
    "stm32_v2",
    16 * _MHZ,
    (
        _change("FLASH.ACR", 0x4002_2000, 0x2, 0xD, "2 wait states, enough in each voltage range"),
        *_back(0x4002_1000, 0x100, 0x400, 0x08, 1, (0xC, 0x4), _HSI16),
    ),
    {
        "USART1": UartPort(0x4001_3800, 61, "RCC.APB2ENR", 0x4002_1060, 1 << 14),
        "USART2": UartPort(0x4000_4400, 62, "RCC.APB1ENR1", 0x4002_1058, 1 << 17),
    },
    _COMMON,
    0x4202_0000,
    "RCC.AHB2ENR",
    0x4002_104C,
    openocd="target/stm32l5x.cfg",
)

_WL = Family(
    "STM32WL",
    "STM32WL(E|5)",
    "stm32_v2",
    16 * _MHZ,
    _back(0x5800_0000, 0x100, 0x400, 0x08, 1, (0xC, 0x4), _HSI16),
    {
        "USART1": UartPort(0x4001_3800, 36, "RCC.APB2ENR", 0x5800_0060, 1 << 14),
        "USART2": UartPort(0x4000_4400, 37, "RCC.APB1ENR1", 0x5800_0058, 1 << 17),
    },
    _COMMON,
    0x4800_0000,
    "RCC.AHB2ENR",
    0x5800_004C,
    openocd="target/stm32wlx.cfg",
)

_H7 = Family(
    "STM32H742, H743, H750 and H753, which have no SMPS",
    "STM32H7(42|43|50|53)",
    "stm32_v2",
    64 * _MHZ,
    (
        *_back(0x5802_4400, 0x1, 0x4, 0x10, 0, (0x38, 0), "HSI 64 MHz", off=0x18),
        RegisterStep(
            "DBGMCU.IDCODE",
            0x5C00_1000,
            "if",
            0xE000_0000,
            0,
            note="ES0392 2.2.9, revisions up to Y: reads of the AXI SRAM may be wrong",
            then=(
                RegisterStep(
                    "AXI.TARG7_FN_MOD", 0x5100_8108, "write", 0xFFFF_FFFF, 1, note="READ_ISS_OVERRIDE"
                ),
            ),
        ),
        _change("PWR.CR3", 0x5802_480C, 0x2, 0x5, "the supply is the LDO, which has to be said once"),
        _wait("PWR.CSR1", 0x5802_4804, 0x2000, 0x2000),
    ),
    {
        "USART1": UartPort(0x4001_1000, 37, "RCC.APB2ENR", 0x5802_44F0, 1 << 4),
        "USART2": UartPort(0x4000_4400, 38, "RCC.APB1LENR", 0x5802_44E8, 1 << 17),
    },
    _COMMON,
    0x5802_0000,
    "RCC.AHB4ENR",
    0x5802_44E0,
    openocd="target/stm32h7x.cfg",
)

FAMILIES = (
    _F1,
    _f4("STM32F4", "STM32F4", "stm32_v1", "target/stm32f4x.cfg"),
    _f4("STM32F7", "STM32F7", "stm32_v2", "target/stm32f7x.cfg"),
    _G0,
    _l4("STM32G4", "STM32G4", "target/stm32g4x.cfg"),
    _l4("STM32L4 and L4+", "STM32L4", "target/stm32l4x.cfg"),
    _H7,
    _C0,
    _L5,
    _WL,
)


def family_of(chip: str) -> Family | None:
    return next((family for family in FAMILIES if re.match(family.names, chip, re.IGNORECASE)), None)


def complete_text(chip: Board, text: str, pins: str = "") -> str:
    """Return a complete board file: ``text`` is the part that the pack describes, ``pins`` are TX and RX.

    The core runs from its internal oscillator, without a PLL. Raises ``UsageError`` if the chip's family has
    no table of pins, if the pins are not in the table, or if the chip's flash is at another address.
    """
    family = family_of(chip.name)
    if family is None:
        known = ", ".join(each.title for each in FAMILIES)
        raise UsageError(
            "this family has no table of pins and clocks",
            where=chip.name,
            hint=f"use --type library, or write a board's file: docs/new-board.md; there are {known}",
        )
    if chip.memory(chip.vectors).origin != _FLASH:
        message = f"its largest flash is not at {_FLASH:#010x}, where it starts"
        raise UsageError(message, where=chip.name, hint="write a board's file: docs/new-board.md")
    return _text(chip, family, _chosen(family, pins, chip.name), text)


def _chosen(family: Family, pins: str, where: str) -> Pins:
    if not pins:
        return family.pins[0]
    for each in family.pins:
        if f"{each.tx},{each.rx}" == pins.upper().replace(" ", ""):
            return each
    known = ", ".join(f"{each.tx},{each.rx} ({each.uart})" for each in family.pins)
    raise UsageError(f"--pins {pins}: there is no UART at these pins", where=where, hint=f"known: {known}")


def _steps(family: Family, pins: Pins) -> Iterator[RegisterStep]:
    # The start, the clocks of the UART and of its pins, and both pins given to the UART.
    yield from family.start
    port = family.ports[pins.uart]
    for pin in dict.fromkeys((pins.tx[1], pins.rx[1])):
        bit = 1 << ord(pin) - ord("A") + family.shift
        yield _change(family.enable, family.address, bit, note=f"port {pin}")
    yield _change(port.enable, port.address, port.bits, note=pins.uart)
    for direction, pin in (("TX", pins.tx), ("RX", pins.rx)):
        yield from _pin(family, pins, direction, pin)


def _pin(family: Family, pins: Pins, direction: str, pin: str) -> Iterator[RegisterStep]:
    name, number = f"GPIO{pin[1]}", int(pin[2:])
    base = family.gpio + 0x400 * (ord(pin[1]) - ord("A"))
    note, high, shift = f"{direction} on {pin}", number // 8, 4 * (number % 8)
    if family is _F1:  # four bits a pin: an output of a peripheral, or an input
        value = (0xB if direction == "TX" else 0x4) << shift
        yield _change(f"{name}.CR{'LH'[high]}", base + 4 * high, value, (0xF << shift) & ~value, note)
        return
    value = pins.function << shift
    register, address = f"{name}.AFR{'LH'[high]}", base + 0x20 + 4 * high
    yield _change(register, address, value, (0xF << shift) & ~value, f"AF{pins.function}: {note}")
    yield _change(f"{name}.MODER", base, 2 << 2 * number, 1 << 2 * number)


def _text(chip: Board, family: Family, pins: Pins, text: str) -> str:
    port, name = family.ports[pins.uart], chip.name.upper()
    start = "\n".join(["start = [", *(f"  {_line(step)}," for step in _steps(family, pins)), "]"])
    lines = [text.partition("\n# From the datasheet")[0].replace("start = [\n]", start).rstrip(), ""]
    lines += ["[uart]", f'kind = "{family.uart}"', f"base = {port.base:#010x}"]
    lines += [f'clock = "{family.clock // _MHZ} MHz"', f"irq = {port.irq}", ""]
    lines += ["[timer]", 'kind = "systick"', f'clock = "{family.clock // _MHZ} MHz"', ""]
    lines += ["[flash]", 'runners = ["openocd", "pyocd", "jlink", "stm32cubeprogrammer", "probe-rs"]']
    lines += [f'openocd = ["interface/stlink.cfg", "{family.openocd}"]', f'pyocd = "{chip.name}"']
    lines += [f'jlink = "{name}"', f'probe-rs = "{name}"', "", "[serial]", "baud = 115200"]
    return "\n".join(lines) + "\n"


def _line(step: RegisterStep) -> str:
    # A step as a board's file has it.
    ones, zeros = step.value, step.mask & ~step.value
    words = {
        "write": [f"write = {step.value:#x}"],
        "wait": [f"wait = {step.mask:#x}", *([] if step.value == step.mask else [f"for = {step.value:#x}"])],
        "if": [f"if = {step.mask:#x}", f"for = {step.value:#x}"],
        "change": [f"{key} = {bits:#x}" for key, bits in (("set", ones), ("clear", zeros)) if bits],
    }[step.operation]
    note = [f'note = "{step.note}"'] if step.note else []
    then = [f"then = [{', '.join(map(_line, step.then))}]"] if step.then else []
    head = [f'register = "{step.register}"', f"address = {step.address:#010x}"]
    return f"{{ {', '.join([*head, *words, *note, *then])} }}"
