"""The syntax of `.properties` files, as java.util.Properties of Java 17 has it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.java_properties import (
    PropertiesSyntaxError,
    format_properties,
    parse_properties,
)

JAVA = (
    "#\n#Sun Nov 15 07:52:10 UTC 2026\n"
    "\\ k\\ y\\:=\\  lead\\ttab\\nnl \\u00E9 \\u20AC \\uD83D\\uDE00 \\!\\#\\=\\:\\\\ end \ne=\n"
)
"""Written by Properties.store for the two entries below."""

VALUES = {" k y:": "  lead\ttab\nnl é € 😀 !#=:\\ end ", "e": ""}


def values(text: str) -> dict[str, str]:
    return {key: result.value for key, result in parse_properties(text).items()}


def test_reads_what_java_wrote() -> None:
    assert values(JAVA) == VALUES


def test_writes_what_java_writes_but_for_the_date() -> None:
    ours = format_properties(VALUES)
    assert ours.lower().splitlines() == [JAVA.lower().splitlines()[n] for n in (0, 2, 3)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# a=b\n! c=d\n   # e=f\n\n", {}),
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("  a \t= \fb c ", {"a": "b c "}),
        ("a = = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\q\\'", {"a": "q'"}),
    ],
)
def test_what_the_syntax_allows(text: str, expected: dict[str, str]) -> None:
    assert values(text) == expected


def test_lines_are_told() -> None:
    properties = parse_properties("#\na=1\n\nb=2\\\n3\nc=4\n")
    assert {key: value.line for key, value in properties.items()} == {"a": 2, "b": 4, "c": 6}


@pytest.mark.parametrize("escape", ["\\u", "\\u12", "\\u12g4", "\\u 123"])
def test_a_half_escape_is_refused(escape: str) -> None:
    with pytest.raises(PropertiesSyntaxError, match="four hexadecimal") as caught:
        parse_properties(f"a=1\nb={escape}")
    assert caught.value.line == 2


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_any_text_comes_back_as_it_was(entries: dict[str, str]) -> None:
    text = format_properties(entries)
    assert text.isascii()
    assert values(text) == entries
