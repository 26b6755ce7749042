"""Progress bar."""

from __future__ import annotations

import io

from rmq_broker.store_tool.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bar_on_a_terminal() -> None:
    stream, clock = Terminal(), Clock()
    progress = Progress("verify", 100, stream, clock)
    progress.advance(10)
    assert stream.getvalue() == ""  # it is too early to tell
    clock.now = 5.0
    progress.advance(40)
    assert stream.getvalue() == f"\rverify [{'#' * 15:<30}]  50%, 5 s left "
    progress.close()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_no_bar_without_a_terminal() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = Progress("verify", 100, stream, clock)
    clock.now = 5.0
    progress.advance(40)
    progress.close()
    assert stream.getvalue() == ""
