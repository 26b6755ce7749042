"""What an SQL92 expression is made of (Apache RocketMQ 5.3.3, org.apache.rocketmq.filter.expression)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Type(Enum):
    """What a constant is; the size of an integer counts, for a text that is compared has to fit into it."""

    STRING = "string"
    INTEGER = "integer"
    LONG = "long integer"
    DOUBLE = "floating point number"
    BOOLEAN = "boolean"
    NULL = "NULL"


NUMBERS = frozenset((Type.INTEGER, Type.LONG, Type.DOUBLE))


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a message's property: a text, or nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that stands in the expression."""

    type: Type
    value: str | int | float | bool | None

    @property
    def is_boolean(self) -> bool:
        """Whether it can stand for a condition: TRUE, FALSE and NULL can."""
        return self.type in (Type.BOOLEAN, Type.NULL)


@dataclass(frozen=True, slots=True)
class Negative:
    """A minus sign."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Not:
    """The contrary of a condition."""

    operand: Condition


@dataclass(frozen=True, slots=True)
class Cast:
    """A property in the place of a condition. Values of properties are texts, so it is never true."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Logic:
    """Conditions joined by AND or by OR, evaluated from left to right."""

    operator: str
    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`=`, `>`, `>=`, `<` or `<=`; IS NULL is `= NULL`."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class TextTest:
    """CONTAINS, STARTSWITH or ENDSWITH."""

    operator: str
    negated: bool
    operand: Node
    text: str


@dataclass(frozen=True, slots=True)
class Membership:
    """A property IN a list of strings."""

    negated: bool
    operand: Property
    texts: tuple[str, ...]


Condition = Constant | Not | Cast | Logic | Comparison | TextTest | Membership
Node = Condition | Property | Negative
