"""Text from files and devices, as it may be shown: nothing in it moves a cursor or sets a colour."""

import re
from dataclasses import dataclass

from crtgen.base.errors import UsageError

__all__ = ["DeviceText", "printable"]

_ARGUMENT = re.compile(r"[A-Za-z0-9:_.][A-Za-z0-9:_.-]*")


def printable(text: str) -> str:
    """``text`` with everything escaped that is not a visible character: controls, overrides of the direction.

    Line ends, tabs and spaces stay. A terminal escape comes out as ``\\x1b[31m``. All that is left are
    characters of XML 1.0 (https://www.w3.org/TR/xml/#charsets), and of UTF-8: no lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


@dataclass(frozen=True, slots=True)
class DeviceText:
    """Text that a device gave: the number of a probe, the name of a product, a line of a log, an error.

    A device is a stranger, so this is no ``str``. It has two ways out: ``str()`` is ``printable``, for people
    and for XML; ``argument`` is a word for another program.
    """

    _text: str = ""

    @classmethod
    def of_bytes(cls, data: bytes) -> "DeviceText":
        """UTF-8; bytes that are none are escaped."""
        return cls(data.decode(errors="backslashreplace"))

    def __str__(self) -> str:
        return printable(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def startswith(self, prefix: str) -> bool:
        return self._text.startswith(prefix)

    def argument(self, what: str) -> str:
        """The text, if every program takes it for one word: letters, digits and ``:_.-``, no ``-`` in front.

        Raises ``UsageError`` for any other, which a program could take for an option or a command.
        """
        if not _ARGUMENT.fullmatch(self._text):
            hint = "letters, digits and :_.- may be in it, no - in front; is it the device that you mean?"
            raise UsageError(f"{what} is not given to another program: {self}", hint=hint)
        return self._text
