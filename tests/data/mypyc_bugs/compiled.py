"""The compiled part of the programs that show bugs of mypyc."""

from __future__ import annotations

from collections.abc import Callable


class Holder:
    def __init__(self, value: object) -> None:
        self.value = value

    def store(self, value: object) -> None:
        self.value = value


def closure(first: object, second: object) -> Callable[[], object]:
    def both() -> object:
        return (first, second)

    return both
