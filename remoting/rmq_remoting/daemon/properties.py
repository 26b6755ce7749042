"""Java's .properties format: parsing, rendering, and editing in place.

The rules are those of `java.util.Properties` (Java 17, `load` and `store`). Apache RocketMQ parses operators'
`broker.conf` and `namesrv.conf` by them, and admin tools fetch and send configurations in this format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_WHITE_SPACE: Final = " \t\f"
# Only these end a line in Java; `str.splitlines` would also split at \v, \x85, \u2028 and others.
_NATURAL_LINE: Final = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TO_ESCAPE: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
_UNICODE_ESCAPE: Final = re.compile("[0-9a-fA-F]{4}")


class PropertiesError(ValueError):
    """A text that is not a properties file; the message has the line."""


@dataclass(frozen=True, slots=True)
class Property:
    """One `key = value` of a text; lines count from 1, `start` and `end` are characters from 0."""

    key: str
    value: str
    line: int
    start: int
    end: int


def decode(data: bytes) -> str:
    """Decode the bytes of a properties file.

    Java reads ISO 8859-1, but files written today are UTF-8. Bytes that are not UTF-8 are decoded as in Java.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse(text: str) -> dict[str, str]:
    """Return all keys with their values; of a repeated key the last one wins. Raises PropertiesError."""
    return {entry.key: entry.value for entry in entries(text)}


def entries(text: str) -> Iterator[Property]:
    """Yield every `key = value` of a text in order, repeated keys included. Raises PropertiesError."""
    for logical, line, start, end in _logical_lines(text):
        key, value = _split(logical)
        try:
            yield Property(_unescape(key), _unescape(value), line, start, end)
        except PropertiesError as error:
            raise PropertiesError(f"line {line}: {error}") from None


def render(properties: Mapping[str, str] | Iterable[tuple[str, str]]) -> str:
    """Return a text of these properties, one per line, in the given order.

    Only necessary escapes are written: `namesrvAddr=127.0.0.1:9876`, as Apache's admin tools show it, not
    `127.0.0.1\\:9876` as `store` writes it. Characters outside ASCII become \\uXXXX, because Java reads bytes
    as ISO 8859-1.
    """
    items = properties.items() if isinstance(properties, Mapping) else properties
    return "".join(f"{_escape_key(key)}={_escape_value(value)}\n" for key, value in items)


def edit(text: str, changes: Mapping[str, str]) -> str:
    """Return the text with these keys set, each in its effective line or in a new line at the end.

    Comments, order and all other lines stay as they are.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    effective = {entry.key: entry for entry in entries(text) if entry.key in changes}
    for entry in sorted(effective.values(), key=lambda each: each.start, reverse=True):
        text = text[: entry.start] + _line(entry.key, changes[entry.key]) + text[entry.end :]
    added = [key for key in changes if key not in effective]
    if added and text and not text.endswith(("\n", "\r")):
        text += newline
    return text + "".join(_line(key, changes[key]) + newline for key in added)


def edit_bytes(data: bytes, changes: Mapping[str, str]) -> bytes:
    """Apply `edit` to a file's content, in the encoding that the file has."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return edit(data.decode("latin-1"), changes).encode("latin-1")
    return edit(data.decode(), changes).encode()


def _line(key: str, value: str) -> str:
    return f"{_escape_key(key)}={_escape_value(value)}"


def _logical_lines(text: str) -> Iterator[tuple[str, int, int, int]]:
    """Yield (content, first line, start, end) of each entry: continued lines joined, comments skipped."""
    parts: list[str] = []
    first_line = start = 0
    for number, match in enumerate(_NATURAL_LINE.finditer(text), 1):
        content = match[1].lstrip(_WHITE_SPACE)
        if not any(parts):  # after a lone backslash the next line may still be a comment
            parts = []
            if not content or content[0] in "#!":
                continue
            first_line, start = number, match.start()
        # Only an odd number of backslashes continues a line, and a continuation is never a comment.
        continues = (len(content) - len(content.rstrip("\\"))) % 2 == 1
        parts.append(content[:-1] if continues else content)
        if continues and match.end() < len(text):
            continue
        joined = "".join(parts)
        if joined:
            yield joined, first_line, start, match.end(1)
        parts = []


def _split(logical: str) -> tuple[str, str]:
    """Return key and value, both still escaped; the key ends at the first bare `=`, `:` or white space."""
    position = 0
    while position < len(logical) and logical[position] not in "=: \t\f":
        position += 2 if logical[position] == "\\" else 1
    position = min(position, len(logical))
    rest = logical[position:].lstrip(_WHITE_SPACE)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_WHITE_SPACE)
    return logical[:position], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while (found := text.find("\\", position)) >= 0:
        out.append(text[position:found])
        letter = text[found + 1 : found + 2]
        position = found + 2
        if letter == "u":
            digits = text[position : position + 4]
            if not _UNICODE_ESCAPE.fullmatch(digits):
                raise PropertiesError(f"\\u must be followed by four hexadecimal digits, not {digits!r}")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPED.get(letter, letter))
    out.append(text[position:])
    return _join_surrogates("".join(out))


def _join_surrogates(text: str) -> str:
    # Java writes a character beyond U+FFFF as two \uXXXX.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape_key(key: str) -> str:
    return "".join("\\" + letter if letter in " =:#!" else _escape_character(letter) for letter in key)


def _escape_value(value: str) -> str:
    escaped = "".join(map(_escape_character, value))
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escape_character(letter: str) -> str:
    if letter in _TO_ESCAPE:
        return _TO_ESCAPE[letter]
    if " " <= letter <= "~":
        return letter
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
