"""Text from files and devices, as it may be shown: nothing in it moves a cursor or sets a colour."""

__all__ = ["printable"]


def printable(text: str) -> str:
    """``text`` with everything escaped that is not a visible character: controls, overrides of the direction.

    Line ends, tabs and spaces stay. A terminal escape comes out as ``\\x1b[31m``.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
