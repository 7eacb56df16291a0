"""Energy of a run and battery life, from the figures in a board's file."""

from dataclasses import dataclass

__all__ = ["ASSUMED_SLEEP_UW", "CR2032", "Duty", "Energy"]

CR2032 = 675.0
"""Milliwatt-hours of the usual coin cell: 225 mAh at 3 V."""

ASSUMED_SLEEP_UW = 10.0
"""Assumed microwatts asleep: 3 µA at 3 V, as in a low-power chip that keeps hundreds of KiB of RAM.

Chips that are not made for batteries take ten to a hundred times as much.
"""

_SECONDS_A_DAY = 86_400
_MICROJOULES_PER_MWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy data of a chip: picojoules per cycle of the running core, microwatts asleep with RAM retained.

    ``source`` names the measurement and the supply voltage. ``sleep_uw`` is None if unknown.
    """

    pj_per_cycle: float
    sleep_uw: float | None
    source: str

    @property
    def asleep_uw(self) -> float:
        return ASSUMED_SLEEP_UW if self.sleep_uw is None else self.sleep_uw

    @property
    def asleep(self) -> str:
        return f"{self.asleep_uw:g} µW asleep{', assumed' if self.sleep_uw is None else ''}"

    @classmethod
    def of_power(cls, watts: float, clock: int, source: str) -> "Energy":
        """Convert from the power of a computing core in watts at ``clock`` Hz."""
        return cls(watts / clock * 1e12, None, source)


@dataclass(frozen=True, slots=True)
class Duty:
    """Duty cycle: a run every ``seconds``, from a battery of a given energy in milliwatt-hours."""

    every: float
    cell: float = CR2032

    def days(self, energy: Energy, microjoules: float, clock: int) -> float | None:
        """Return the battery life in days, for runs of ``microjoules`` each; None if a run takes longer than
        the period.

        Between runs the chip sleeps at ``energy.asleep_uw``. Radio, sensor and self-discharge are not
        included.
        """
        seconds = microjoules * 1e6 / energy.pj_per_cycle / clock
        if seconds > self.every:
            return None
        asleep = energy.asleep_uw * (self.every - seconds)
        return self.cell * _MICROJOULES_PER_MWH * self.every / (microjoules + asleep) / _SECONDS_A_DAY
