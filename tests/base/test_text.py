"""Text of devices has two ways out: what people and XML get, and words for other programs."""

import sys
from xml.etree import ElementTree

import pytest

from crtgen.base.errors import UsageError
from crtgen.base.text import DeviceText, printable


def test_every_character_is_shown_and_is_xml() -> None:
    everything = printable("".join(map(chr, range(sys.maxunicode + 1))))
    assert all(c.isprintable() or c in "\n\t" for c in everything)
    element = ElementTree.Element("e")
    element.text = everything
    assert ElementTree.fromstring(ElementTree.tostring(element, "utf-8")).text == everything


@pytest.mark.parametrize("evil", ["0 ; exec x", "-c", "", "a b", "1\n", "[x]", "$x", "{", '"', "a\0", "é"])
def test_a_word_for_a_program_is_one_of_an_allowed_kind(evil: str) -> None:
    with pytest.raises(UsageError, match="the number cannot be passed to another program"):
        DeviceText(evil).argument("the number")
    assert DeviceText("0674:FF.a_b-1").argument("the number") == "0674:FF.a_b-1"


def test_it_is_shown_and_compared_as_it_is() -> None:
    assert f"{DeviceText.of_bytes(b'1' + bytes((27, 255)))}" == r"1\x1b\xff"
    assert DeviceText("a") == DeviceText("a") != DeviceText("b")
    assert not DeviceText() and DeviceText("ab").startswith("a")  # noqa: PT018
