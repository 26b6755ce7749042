"""Java's .properties format, compared with the results of java.util.Properties."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_remoting.daemon import properties
from rmq_remoting.daemon.properties import PropertiesError
from tests.support.golden import json_lines
from tests.support.rows import each_row

# {"text": …, "properties": what `Properties.load` of Java 17 reads, null where it throws}
_ROWS = json_lines("settings/java_properties.jsonl")

_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
_properties = st.dictionaries(_texts, _texts, max_size=5)


@each_row("row", _ROWS)
def test_texts_are_parsed_as_in_java(row: dict[str, object]) -> None:
    text = str(row["text"])
    if row["properties"] is None:
        with pytest.raises(PropertiesError, match="line 1"):
            properties.parse(text)
    else:
        assert properties.parse(text) == row["properties"]


@given(_properties)
def test_rendered_properties_parse_back(values: dict[str, str]) -> None:
    assert properties.parse(properties.render(values)) == values


@given(_properties)
def test_rendered_properties_are_ascii(values: dict[str, str]) -> None:
    assert properties.render(values).isascii()


@given(_texts)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(PropertiesError):
        properties.parse(text)


def test_only_necessary_escapes_are_rendered() -> None:
    assert properties.render({"namesrvAddr": "127.0.0.1:9876;b=c"}) == "namesrvAddr=127.0.0.1:9876;b=c\n"


def test_entries_have_their_positions() -> None:
    text = "# first\n\na=1\nb = 2 \\\n  and more\nc=3"
    found = [(entry.key, entry.line, text[entry.start : entry.end]) for entry in properties.entries(text)]
    assert found == [("a", 3, "a=1"), ("b", 4, "b = 2 \\\n  and more"), ("c", 6, "c=3")]


def test_the_error_for_a_bad_escape_names_its_line() -> None:
    with pytest.raises(PropertiesError, match=r"line 2.*four hexadecimal digits"):
        properties.parse("a=1\nb=\\u12")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a=1\nb=2\n", "a=9\nb=2\n"),
        ("# about a\n  a : 1 # no comment\nb=2", "# about a\na=9\nb=2"),
        ("a=1\\\n   2\nb=2\n", "a=9\nb=2\n"),
        ("a=1\na=2\n", "a=1\na=9\n"),
        ("b=2", "b=2\na=9\n"),
        ("b=2\r\n", "b=2\r\na=9\r\n"),
        ("", "a=9\n"),
        ("#a=1\n", "#a=1\na=9\n"),
    ],
)
def test_editing_changes_one_line(before: str, after: str) -> None:
    assert properties.edit(before, {"a": "9"}) == after


@given(_texts, st.dictionaries(st.sampled_from("abc"), _texts))
def test_editing_changes_nothing_else(text: str, changes: dict[str, str]) -> None:
    try:
        before = properties.parse(text)
    except PropertiesError:
        return
    # A text may end in a lone backslash, which takes in whatever is added after it.
    if text.rstrip("\r\n").endswith("\\"):
        return
    assert properties.parse(properties.edit(text, changes)) == before | changes


def test_files_are_decoded_as_utf_8_or_as_in_java() -> None:
    assert properties.decode("a=é".encode()) == "a=é"
    assert properties.decode("a=é".encode("latin-1")) == "a=é"
    assert properties.decode(b"\xef\xbb\xbfa=1") == "a=1"


def test_editing_keeps_the_encoding() -> None:
    assert properties.edit_bytes("# é\na=1\n".encode("latin-1"), {"a": "2"}) == "# é\na=2\n".encode("latin-1")
    assert properties.edit_bytes("# é\na=1\n".encode(), {"a": "ü"}) == "# é\na=\\u00fc\n".encode()
