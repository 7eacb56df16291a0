"""What a UART answers to a driver: registers that say when a byte may go, and bring those that came.

``read`` gives None for a register that keeps what was written to it.
"""

from collections.abc import Callable, Mapping

__all__ = ["UARTS", "Uart"]


class Uart:
    """``came`` are the bytes on the line to the chip, ``sent`` those that it sent."""

    def __init__(self, memory: Callable[[int], int]) -> None:
        self.came = bytearray()
        self.sent = bytearray()
        self.memory = memory

    @property
    def interrupts(self) -> bool:
        return bool(self.came)

    def read(self, offset: int) -> int | None:
        raise NotImplementedError

    def write(self, offset: int, value: int) -> None:
        raise NotImplementedError

    def next(self) -> int:
        return self.came.pop(0) if self.came else 0


class Flags(Uart):
    """A register of flags, one that brings bytes and one that takes them."""

    flags, idle, full, receive, send = 0, 0, 0, 0, 0

    def read(self, offset: int) -> int | None:
        if offset == self.flags:
            return self.idle | (self.full if self.came else 0)
        return self.next() if offset == self.receive else None

    def write(self, offset: int, value: int) -> None:
        if offset == self.send:
            self.sent.append(value & 255)


class Quiet(Uart):
    """A port that nobody is connected to."""

    def read(self, offset: int) -> int | None:
        return None

    def write(self, offset: int, value: int) -> None:
        pass


class Stm32V1(Flags):
    flags, idle, full, receive, send = 0x00, 0xC0, 0x20, 0x04, 0x04


class Stm32V2(Flags):
    flags, idle, full, receive, send = 0x1C, 0xC0, 0x20, 0x24, 0x28


class Kinetis(Flags):
    flags, idle, full, receive, send = 0x04, 0xC0, 0x20, 0x07, 0x07


class Cmsdk(Flags):
    flags, idle, full, receive, send = 0x04, 0, 0x02, 0x00, 0x00


class NxpLpuart(Flags):
    flags, idle, full, receive, send = 0x14, 0xC0_0000, 0x20_0000, 0x1C, 0x1C


class SamSercom(Flags):
    flags, idle, full, receive, send = 0x18, 0x01, 0x04, 0x28, 0x28


class RaSci(Flags):
    flags, idle, full, receive, send = 0x04, 0x84, 0x40, 0x05, 0x03


class RaSciB(Flags):
    flags, idle, full, receive, send = 0x48, 0x6000_0000, 0x8000_0000, 0x00, 0x04


class Pl011(Flags):
    flags, receive, send = 0x18, 0x00, 0x00

    def read(self, offset: int) -> int | None:
        if offset == self.flags:
            return 0x80 | (0 if self.came else 0x10)
        return super().read(offset)


class NrfUart(Uart):
    """Events: a byte came (0x108), a byte went (0x11C)."""

    def __init__(self, memory: Callable[[int], int]) -> None:
        super().__init__(memory)
        self.events = {0x108: 0, 0x11C: 0}
        self.on = False

    @property
    def interrupts(self) -> bool:
        if self.on and self.came:
            self.events[0x108] = 1
        return bool(self.events[0x108])

    def read(self, offset: int) -> int | None:
        if offset == 0x518:
            return self.next()
        if self.interrupts:
            self.on = True
        return self.events.get(offset)

    def write(self, offset: int, value: int) -> None:
        if offset in self.events:
            self.events[offset] = value
        if offset == 0x000:
            self.on = True
        if offset == 0x51C:
            self.sent.append(value & 255)
            self.events[0x11C] = 1


class NrfUarte(Uart):
    """It reads and writes memory: a byte at a time, as the driver says. Events: a byte came, a byte went."""

    start_rx, start_tx, end_rx, end_tx, rx_pointer, tx_pointer = 0x000, 0x008, 0x110, 0x120, 0x534, 0x544

    def __init__(self, memory: Callable[[int], int]) -> None:
        super().__init__(memory)
        self.events = {self.end_rx: 0, self.end_tx: 0}
        self.pointers = {self.rx_pointer: 0, self.tx_pointer: 0}
        self.on = False
        self.deliver: Callable[[int, int], None] = lambda address, byte: None

    @property
    def interrupts(self) -> bool:
        if self.on and self.came and not self.events[self.end_rx]:
            self.deliver(self.pointers[self.rx_pointer], self.next())
            self.on, self.events[self.end_rx] = False, 1
        return bool(self.events[self.end_rx])

    def read(self, offset: int) -> int | None:
        return self.events.get(offset)

    def write(self, offset: int, value: int) -> None:
        for registers in (self.events, self.pointers):
            if offset in registers:
                registers[offset] = value
        if offset == self.start_rx:
            self.on = True
        if offset == self.start_tx:
            self.sent.append(self.memory(self.pointers[self.tx_pointer]))
            self.events[self.end_tx] = 1


class Nrf54Uarte(NrfUarte):
    start_rx, start_tx, end_rx, end_tx, rx_pointer, tx_pointer = 0x028, 0x050, 0x14C, 0x168, 0x704, 0x73C


UARTS: Mapping[str, type[Uart]] = {
    "stm32_v1": Stm32V1,
    "stm32_v2": Stm32V2,
    "stm32_lpuart": Stm32V2,
    "cmsdk": Cmsdk,
    "kinetis": Kinetis,
    "nxp_lpuart": NxpLpuart,
    "sam_sercom": SamSercom,
    "ra_sci": RaSci,
    "ra_sci_b": RaSciB,
    "pl011": Pl011,
    "nrf_uart": NrfUart,
    "nrf_uarte": NrfUarte,
    "nrf54_uarte": Nrf54Uarte,
    "rp2040_usb": Quiet,
    "rp2350_usb": Quiet,
}
