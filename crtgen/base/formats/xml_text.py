"""XML files from chip vendors, such as those in CMSIS packs."""

from pathlib import Path
from xml.etree import ElementTree

from crtgen.base.errors import UsageError
from crtgen.base.formats.foreign import foreign

__all__ = ["Element", "parse_xml"]

Element = ElementTree.Element

# Bytes that Python takes for an element.
_PER_ELEMENT = 200


def parse_xml(data: bytes, path: Path, what: str) -> Element:
    """Parse a UTF-8 document that defines no entities. Raises ``UsageError``."""
    with foreign(path, what) as spent:
        if b"<!ENTITY" in data or b"\0" in data:
            raise UsageError(
                f"{what} declares entities, or is not UTF-8",
                where=str(path),
                hint="save it as UTF-8 and without a DOCTYPE",
            )
        spent.hold(_PER_ELEMENT * data.count(b"<"), "elements of XML")
        return ElementTree.fromstring(data)
