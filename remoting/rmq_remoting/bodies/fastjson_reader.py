"""Reader of the fastjson dialect: orjson for standard text, a tolerant parser for the rest.

Beyond standard JSON the tolerant parser accepts the forms that fastjson 1.2.83 accepts with its default
features, as far as they are seen on the wire: integer and object keys, names without quotes, single quotes,
surplus commas, control characters in strings, the escapes `\\x41`, `\\v`, `\\0` and `\\'`. Its time is
linear.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

from ..errors import JsonError
from .fastjson_limits import NO_LIMITS, JsonLimits, check_count, too_many_values
from .fastjson_references import resolve_references
from .object_key import ObjectKey

# Bodies nest less than ten levels. fastjson's limit is 512.
MAX_DEPTH: Final = 128
_MAX_DIGITS: Final = 20  # of a 64-bit integer with its sign
# Not from `integers`, which imports pydantic: that takes as long as all other imports of `rmq-store`.
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1

_GAP: Final = re.compile(r"[ \t\r\n\f\b]*+")
_GAP_OR_COMMAS: Final = re.compile(r"[ \t\r\n\f\b,]*+")
# Possessive: a string without an end is found in one pass.
_STRINGS: Final = {
    '"': re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL),
    "'": re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL),
}
_NUMBER: Final = re.compile(r"-?[0-9]++(\.[0-9]++)?+([eE][+-]?[0-9]++)?+")
_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_WORDS: Final[dict[str, object]] = {"true": True, "false": False, "null": None}
_ESCAPED: Final = {
    **{character: character for character in "\"'\\/"},
    **dict(zip("bfnrtvF", "\b\f\n\r\t\v\f", strict=True)),
    **{str(code): chr(code) for code in range(8)},
}


def loads(data: bytes | bytearray | memoryview, limits: JsonLimits = NO_LIMITS) -> object:
    """Decode a JSON text, standard or in fastjson's dialect.

    Bare integer keys become ints and object keys `ObjectKey`s. Quoted keys stay text, whatever they contain;
    the typed bodies decode those, too. References are replaced with their targets, which are then shared.
    Raises JsonError, with the position if there is one.
    """
    content = bytes(data)
    try:
        value: object = orjson.loads(content)
    except orjson.JSONDecodeError:
        value = _Reader(_decoded(content), limits.dialect_values).whole()
    else:
        check_count(content, value, limits.values)
    if b'"$ref"' in content or b"'$ref'" in content:
        value = resolve_references(value, limits.values)
    return value


def _decoded(data: bytes) -> str:
    try:
        return str(data, "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8 text: {error.reason}", error.start) from error


class _Reader:
    """A recursive descent parser of one text."""

    __slots__ = ("_most", "_position", "_text", "_values_left")

    def __init__(self, text: str, most_values: int) -> None:
        self._text = text
        self._position = 0
        self._most = self._values_left = most_values

    def whole(self) -> object:
        value = self._value(MAX_DEPTH)
        if self._next(_GAP):
            raise self._error("text after the end of the value")
        return value

    def _next(self, skipped: re.Pattern[str]) -> str:
        """Skip a match of the pattern; return the character after it, empty at the end of the text."""
        match = skipped.match(self._text, self._position)
        if match is not None:
            self._position = match.end()
        return self._text[self._position : self._position + 1]

    def _error(self, problem: str) -> JsonError:
        found = self._text[self._position : self._position + 1]
        told = f"{problem}, found {found!r}" if found else "the text ends too early"
        return JsonError(told, self._position)

    def _value(self, levels_left: int) -> object:
        self._values_left -= 1
        if self._values_left < 0:
            raise too_many_values(self._most)
        first = self._next(_GAP)
        if first in ('"', "'"):
            return self._string(first)
        if first == "{":
            return self._object(levels_left - 1)
        if first == "[":
            return self._array(levels_left - 1)
        number = _NUMBER.match(self._text, self._position)
        if number is not None:
            return self._number(number)
        word = _NAME.match(self._text, self._position)
        if word is None or word[0] not in _WORDS:
            raise self._error("a value is expected")
        self._position = word.end()
        return _WORDS[word[0]]

    def _array(self, levels_left: int) -> list[object]:
        self._enter(levels_left)
        items: list[object] = []
        while self._next(_GAP_OR_COMMAS) != "]":
            items.append(self._value(levels_left))
            self._end_of_item("]")
        self._position += 1
        return items

    def _object(self, levels_left: int) -> dict[object, object]:
        self._enter(levels_left)
        members: dict[object, object] = {}
        while (first := self._next(_GAP_OR_COMMAS)) != "}":
            key = self._key(first, levels_left)
            if self._next(_GAP) != ":":
                raise self._error("':' is expected after a key")
            self._position += 1
            members[key] = self._value(levels_left)
            self._end_of_item("}")
        self._position += 1
        return members

    def _enter(self, levels_left: int) -> None:
        if levels_left < 0:
            raise self._error(f"nested deeper than {MAX_DEPTH} levels")
        self._position += 1

    def _end_of_item(self, end: str) -> None:
        if self._next(_GAP) not in (",", end):
            raise self._error(f"',' or {end!r} is expected")

    def _key(self, first: str, levels_left: int) -> str | int | ObjectKey:
        if first in ('"', "'"):
            return self._string(first)
        if first == "{":
            start = self._position
            try:
                return ObjectKey.of(self._object(levels_left - 1))  # type: ignore[arg-type]
            except TypeError as error:
                raise JsonError(f"an object that cannot be a key: {error}", start) from error
        name = _NAME.match(self._text, self._position)
        if name is not None:
            self._position = name.end()
            return name[0]
        number = _NUMBER.match(self._text, self._position)
        key = None if number is None else self._number(number)
        if not isinstance(key, int):
            raise self._error("a key is expected (text, an integer or an object)")
        return key

    def _number(self, match: re.Match[str]) -> int | float:
        self._position = match.end()
        if match[1] is not None or match[2] is not None:
            return float(match[0])
        # Not only Java's limit: with larger numbers as keys a dictionary can be made to take quadratic time.
        if len(match[0]) <= _MAX_DIGITS and _INT64_MIN <= (number := int(match[0])) <= _INT64_MAX:
            return number
        raise JsonError("an integer of more than 64 bits", match.start())

    def _string(self, quote: str) -> str:
        match = _STRINGS[quote].match(self._text, self._position)
        if match is None:
            raise JsonError("a string without an end", self._position)
        self._position = match.end()
        content = match[1]
        return _unescaped(content, match.start(1)) if "\\" in content else content


def _unescaped(content: str, start: int) -> str:
    def replacement(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) > 1:
            return chr(int(escape[1:], 16))
        if escape not in _ESCAPED:
            raise JsonError(f"an unknown escape \\{escape}", start + match.start())
        return _ESCAPED[escape]

    text = _ESCAPE.sub(replacement, content)
    if _SURROGATE.search(text) is None:
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise JsonError("half of a surrogate pair", start) from error
