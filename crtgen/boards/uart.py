"""UART drivers for bare metal: how each divides its clock. The rest of a driver is in its template."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["UARTS", "Rate"]


@dataclass(frozen=True, slots=True)
class Rate:
    """A possible baud rate in bits per second, and the register fields that set it."""

    baud: float
    fields: Mapping[str, int]


def _within(least: int, value: float, most: int) -> int:
    # The nearest integer that a register takes.
    return min(max(least, round(value)), most)


def _cmsdk(clock: int, baud: int) -> Rate:
    divider = _within(16, clock // baud, 0xF_FFFF)
    return Rate(clock / divider, {"divider": divider})


def _pl011(clock: int, baud: int) -> Rate:
    # The divider has 16 bits, and 6 behind the point (ARM DDI 0183, UARTIBRD and UARTFBRD).
    divider = _within(64, 4 * clock / baud, 0x3F_FFFF)
    return Rate(4 * clock / divider, {"whole": divider >> 6, "fraction": divider & 63})


def _stm32(clock: int, baud: int) -> Rate:
    # USART_BRR with 16 samples a bit: 16 of its units are a divider of 1.
    divider = _within(16, clock / baud, 0xFFFF)
    return Rate(clock / divider, {"divider": divider})


def _stm32_lpuart(clock: int, baud: int) -> Rate:
    # LPUART_BRR counts 256ths of a clock; less than 0x300 is not allowed.
    divider = _within(0x300, 256 * clock / baud, 0xF_FFFF)
    return Rate(256 * clock / divider, {"divider": divider})


def _nrf_uart(clock: int, baud: int) -> Rate:
    # BAUDRATE is a share of 16 MHz in units of 2^-32, rounded to 20 bits, as Nordic lists it.
    value = _within(0x1000, (baud << 32) / clock + 0x800, 0x1000_0000) & 0xFFFF_F000
    return Rate(value * clock / (1 << 32), {"rate": value})


# BAUDRATE of the UARTE for the rates that Nordic lists (nRF5340 Product Specification, UARTE).
_UARTE_RATES = {
    9600: 0x0027_5000,
    19200: 0x004E_A000,
    38400: 0x009D_0000,
    57600: 0x00EB_0000,
    115200: 0x01D6_0000,
    230400: 0x03B0_0000,
    460800: 0x0740_0000,
    921600: 0x0F00_0000,
    1_000_000: 0x1000_0000,
}


def _nrf_uarte(clock: int, baud: int) -> Rate:
    nearest = min(_UARTE_RATES, key=lambda rate: abs(rate - baud))
    return Rate(_UARTE_RATES[nearest] * clock / (1 << 32), {"rate": _UARTE_RATES[nearest]})


def _kinetis(clock: int, baud: int) -> Rate:
    # SBR has 13 bits, BRFA counts 32nds of it (K64 Reference Manual, UART baud rate generation).
    divider = _within(32, 2 * clock / baud, 0x3_FFFF)
    return Rate(2 * clock / divider, {"whole": divider >> 5, "fraction": divider & 31})


def _nxp_lpuart(clock: int, baud: int) -> Rate:
    # OSR samples a bit, 8 to 32, and a divider SBR of 13 bits: the pair that is nearest to the rate.
    pairs = [(samples, _within(1, clock / (samples * baud), 0x1FFF)) for samples in range(32, 7, -1)]
    samples, divider = min(pairs, key=lambda pair: abs(clock / (pair[0] * pair[1]) - baud))
    return Rate(clock / (samples * divider), {"samples": samples - 1, "divider": divider})


def _sam_sercom(clock: int, baud: int) -> Rate:
    # BAUD with 16 samples a bit: 13 bits and eighths (SAM D5x/E5x datasheet, SERCOM, fractional baud rate).
    divider = _within(8, clock / (2 * baud), 0xFFFF)
    return Rate(clock / (2 * divider), {"whole": divider >> 3, "fraction": divider & 7})


_SCI_MODES = {32: 0x00, 16: 0x10, 8: 0x50, 6: 0x08}
# Clocks of a bit, and the bits BGDM, ABCS and ABCSE of SEMR, or of CCR2, that make them so many.
_SCI_B_MODES = {32: 0x00, 16: 0x10, 8: 0x30, 6: 0x40}


def _ra_sci(clock: int, baud: int, modes: Mapping[int, int] = _SCI_MODES) -> Rate:
    # CKS divides by 1, 4, 16 or 64, BRR by 1 to 256 (RA8M1 Hardware Manual, table 31.7; RA4M1, 28.2).
    ways = [
        (clocks, shift, _within(1, clock / ((clocks << 2 * shift) * baud), 256))
        for shift in range(4)
        for clocks in modes
    ]
    clocks, shift, divider = min(ways, key=lambda way: abs(clock / ((way[0] << 2 * way[1]) * way[2]) - baud))
    fields = {"mode": modes[clocks], "shift": shift, "divider": divider - 1}
    return Rate(clock / ((clocks << 2 * shift) * divider), fields)


def _ra_sci_b(clock: int, baud: int) -> Rate:
    return _ra_sci(clock, baud, _SCI_B_MODES)


def _usb(clock: int, baud: int) -> Rate:
    # Bytes are as fast as the bus.
    return Rate(baud, {})


UARTS: Mapping[str, Callable[[int, int], Rate]] = {
    "cmsdk": _cmsdk,
    "pl011": _pl011,
    "stm32_v1": _stm32,
    "stm32_v2": _stm32,
    "stm32_lpuart": _stm32_lpuart,
    "nrf_uart": _nrf_uart,
    "nrf_uarte": _nrf_uarte,
    "nrf54_uarte": _nrf_uarte,
    "kinetis": _kinetis,
    "nxp_lpuart": _nxp_lpuart,
    "sam_sercom": _sam_sercom,
    "ra_sci": _ra_sci,
    "ra_sci_b": _ra_sci_b,
    "rp2040_usb": _usb,
    "rp2350_usb": _usb,
}
"""Function of each driver that finds the nearest possible baud rate from the wanted rate and the clock in
Hz.
"""
