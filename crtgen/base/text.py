"""Text from files and devices, made safe to show: it cannot move a cursor or set a colour."""

import re
from dataclasses import dataclass

from crtgen.base.errors import UsageError

__all__ = ["DeviceText", "printable"]

_ARGUMENT = re.compile(r"[A-Za-z0-9:_.][A-Za-z0-9:_.-]*")


def printable(text: str) -> str:
    r"""Escape everything in ``text`` that is not a visible character, such as controls and direction
    overrides.

    Line ends, tabs and spaces stay. A terminal escape comes out as ``\x1b[31m``. The result is valid in XML
    1.0 (https://www.w3.org/TR/xml/#charsets) and UTF-8, without lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


@dataclass(frozen=True, slots=True)
class DeviceText:
    """Text that a device sent: a probe's number, a product's name, a line of a log, an error.

    A device is not trusted, so this is no ``str``. There are two ways to use it: ``str()`` gives
    ``printable`` text, for display and for XML; ``argument`` gives a word that can be passed to another
    program.
    """

    _text: str = ""

    @classmethod
    def of_bytes(cls, data: bytes) -> "DeviceText":
        """Decode UTF-8; invalid bytes are escaped."""
        return cls(data.decode(errors="backslashreplace"))

    def __str__(self) -> str:
        return printable(self._text)

    def __bool__(self) -> bool:
        return bool(self._text)

    def startswith(self, prefix: str) -> bool:
        return self._text.startswith(prefix)

    def argument(self, what: str) -> str:
        """Return the text if it is safe as a single argument of a program: letters, digits and ``:_.-``, not
        starting with ``-``.

        Raises ``UsageError`` for any other text, which a program could take for an option or a command.
        """
        if not _ARGUMENT.fullmatch(self._text):
            hint = "letters, digits and :_.- may be in it, no - in front; is it the device that you mean?"
            raise UsageError(f"{what} cannot be passed to another program: {self}", hint=hint)
        return self._text
