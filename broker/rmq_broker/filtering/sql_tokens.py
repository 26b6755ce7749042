"""Tokens of SQL92 filter expressions (Apache RocketMQ 5.3.3, SelectorParser.jj)."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from ..clients.subscription import ExpressionError


class SqlError(ExpressionError):
    """An invalid SQL92 expression; `position` counts characters from 1."""

    def __init__(self, position: int, problem: str) -> None:
        super().__init__(f"SQL92 expression, character {position}: {problem}")
        self.position = position


class Kind(Enum):
    """Kind of a token. Keywords and signs share one kind each; the token's text tells them apart."""

    WORD = "key word"
    SIGN = "sign"
    NAME = "name of a property"
    INTEGER = "integer"
    FLOAT = "floating point number"
    STRING = "string"
    END = "end"


_SHOWN_CHARACTERS: Final = 40


class Token(NamedTuple):
    """One token; keywords are in upper case. `position` counts characters from 1."""

    kind: Kind
    text: str
    position: int

    def __str__(self) -> str:
        if self.kind is Kind.END:
            return "the end"
        return self.text if len(self.text) <= _SHOWN_CHARACTERS else f"{self.text[:_SHOWN_CHARACTERS]}..."

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords."""
        return self.kind is Kind.WORD and self.text in words

    def is_sign(self, *signs: str) -> bool:
        """Whether it is one of these signs."""
        return self.kind is Kind.SIGN and self.text in signs


_KEY_WORDS: Final = frozenset(
    (
        *("NOT", "AND", "OR", "IS", "NULL", "TRUE", "FALSE"),
        *("BETWEEN", "IN", "CONTAINS", "STARTSWITH", "ENDSWITH"),
    )
)

# A line comment needs an end of the line; without one it is two minus signs.
_SKIPPED: Final = re.compile(r"(?:[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\n|\r)|/\*.*?\*/)+", re.DOTALL)
# The longest match comes first. A leading 0 is a separate number.
_TOKEN: Final = re.compile(
    r"(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<INTEGER>0|[1-9][0-9]*[lL]?)"
    r"|(?P<STRING>'(?:''|[^'])*')"
    r"|(?P<NAME>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<SIGN><>|<=|>=|[=<>(),+-])"
)
_HINTS: Final = {
    '"': "a string stands in single quotes: 'text'",
    "'": "this string has no end: a closing ' is missing",
    "!": "not equal is written <>",
    "*": "there is no arithmetic",
    "/": "there is no arithmetic, and a comment ends with */",
    "%": "there is no arithmetic",
    ".": "names of properties have letters, digits, _ and $ only",
    "|": "'or' is written OR (this looks like a tag expression, which has the type TAG)",
    "&": "'and' is written AND",
}


class Tokens:
    """Tokens of an expression, read on demand.

    As in Apache's broker, an invalid token that the parser never reaches is not refused.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._next: Token | None = None

    def peek(self) -> Token:
        """Return the next token without consuming it. Raises SqlError."""
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Token:
        """Consume and return the next token. Raises SqlError."""
        token = self.peek()
        self._next = None
        return token

    def follows_digit(self) -> bool:
        """Whether the next token follows a digit without a blank."""
        return self._text[: self.peek().position - 1][-1:].isdigit()

    def only_comment_left(self) -> bool:
        """Whether only a comment to the end of the text is left."""
        token = self.peek()
        if token.kind is Kind.END:
            return True
        rest = self._text[token.position - 1 :]
        return rest.startswith("--") and "\n" not in rest and "\r" not in rest

    def _read(self) -> Token:
        skipped = _SKIPPED.match(self._text, self._at)
        if skipped is not None:
            self._at = skipped.end()
        position = self._at + 1
        if self._at == len(self._text):
            return Token(Kind.END, "", position)
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise _unreadable(self._text[self._at], position)
        self._at = match.end()
        kind, text = Kind[match.lastgroup or ""], match[0]
        if kind is Kind.NAME and text.upper() in _KEY_WORDS:
            return Token(Kind.WORD, text.upper(), position)
        return Token(kind, text, position)


def _unreadable(character: str, position: int) -> SqlError:
    if not character.isascii() and character.isalpha():
        hint = "names of properties have the letters a to z only, other letters stand in strings"
    else:
        hint = _HINTS.get(character, "this character can only stand in a string")
    return SqlError(position, f"cannot read {character!r}: {hint}")
