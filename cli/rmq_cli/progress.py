"""Progress bars on standard error, on terminals alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")


class Advance(Protocol):
    """Called with how many steps are done in all."""

    def __call__(self, done: int) -> None: ...


@contextmanager
def progress(total: int | None, about: str) -> Iterator[Advance]:
    """Show a bar while the block runs. Without `total` it counts."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(about, total=total)
        yield lambda done: bar.update(task, completed=done)


def progress_of(items: Sequence[T], about: str) -> Iterator[T]:
    """Yield the items behind a bar."""
    with progress(len(items), about) as advance:
        for number, item in enumerate(items, 1):
            yield item
            advance(number)
