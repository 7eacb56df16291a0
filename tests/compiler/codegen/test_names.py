"""Identifiers, strings and comments that C takes whatever a model calls its layers."""

import pytest

from crtgen.compiler.codegen.names import c_identifier, c_string, comment, unique_identifiers


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("conv2d", "conv2d"),
        ("serving_default_input:0", "serving_default_input_0"),
        ("a/b//c;d", "a_b_c_d"),
        ("3x3", "x_3x3"),
        ("int", "x_int"),
        ("class", "x_class"),
        ("asm", "x_asm"),
        ("and", "x_and"),
        ("static_assert", "x_static_assert"),
        ("", "x_"),
        ("häß", "h"),
        ("_reserved", "reserved"),
        ("n" * 60, "n" * 48),
    ],
)
def test_identifier(text: str, name: str) -> None:
    assert c_identifier(text) == name


def test_identifiers_differ() -> None:
    names = unique_identifiers(["a/b", "a:b", "a_b", "a_b_2", "a/b"])
    assert names == {"a/b": "a_b", "a:b": "a_b_2", "a_b": "a_b_3", "a_b_2": "a_b_2_2"}


def test_string() -> None:
    assert c_string('a"b\\c?\n') == '"a\\042b\\134c\\077\\012"'
    assert c_string("é1") == '"\\303\\2511"'


def test_comment() -> None:
    assert comment("a */ b /* c\n??/é") == "a * / b / * c_? ?/_"
