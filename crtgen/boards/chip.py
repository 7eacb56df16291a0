"""Chip specifics: first steps after reset, data for the boot ROM, errata."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["BOOTS", "SECOND_CORES", "Boot", "Errata", "Erratum", "RegisterStep", "all_steps"]


@dataclass(frozen=True, slots=True)
class RegisterStep:
    """One access to a register of ``bits`` bits before anything else runs.

    ``operation`` is

    - ``write``: write ``value``;
    - ``change``: set the bits of ``mask`` to ``value``;
    - ``wait``: wait until the bits of ``mask`` are ``value``;
    - ``if``, ``unless``: do the steps ``then`` if those bits are, or are not, ``value``;
    - ``pairs``: read up to ``value`` pairs of words from the address; write the second word of each to the
      address in the first; stop at an address of all ones or zeros.

    ``register`` is its name in the chip's manual, such as ``RCC.AHB2ENR``; ``note`` says what the step is
    for.
    """

    register: str
    address: int
    operation: str
    mask: int
    value: int
    bits: int = 32
    note: str = ""
    then: tuple["RegisterStep", ...] = ()


def all_steps(steps: tuple[RegisterStep, ...]) -> Iterator[RegisterStep]:
    """Yield each step, and the steps that depend on it, in order."""
    for step in steps:
        yield step
        yield from all_steps(step.then)


@dataclass(frozen=True, slots=True)
class Boot:
    """Structure in flash that the chip's boot ROM requires: its offset, and the offset of the vectors after
    it.
    """

    at: int
    vectors: int


BOOTS: Mapping[str, Boot] = {
    "rp2040": Boot(at=0, vectors=0x100),
    "rp2350": Boot(at=0x200, vectors=0),
    "kinetis": Boot(at=0x400, vectors=0),
}
"""Boot structures by kind: offsets in bytes from the start of the vectors' memory. ``boot_<kind>.c`` is the
template.
"""


SECOND_CORES = ("rp2040", "sse200", "thread")
"""Ways to start a second core; ``second_<kind>.c`` is the template. On this computer it is a thread."""


@dataclass(frozen=True, slots=True)
class Erratum:
    """An erratum that concerns crtgen: its number, its subject, and how crtgen handles it, or why it need
    not.
    """

    number: str
    about: str
    done: str


@dataclass(frozen=True, slots=True)
class Errata:
    """The maker's errata sheet with its revision, and those errata that concern crtgen."""

    sheet: str
    listed: tuple[Erratum, ...] = ()
