"""The C library's allocator."""

from __future__ import annotations

import ctypes
import platform

import pytest

from rmq_remoting import allocator


class _Library:
    def __init__(self, answer: int) -> None:
        self.answer = answer
        self.asked: dict[int, int] = {}

    def mallopt(self, option: int, value: int) -> int:
        self.asked[option] = value
        return self.answer


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is of glibc")
def test_glibc_accepts_the_setting() -> None:
    assert allocator.keep_freed_memory(8 * 1024 * 1024)


def test_freed_blocks_and_the_end_of_the_heap_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    library = _Library(1)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)

    assert allocator.keep_freed_memory(1_000_000)

    assert library.asked == {-1: 1_000_000, -3: 1_000_000}


def test_libraries_without_the_setting_return_false(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not allocator.keep_freed_memory(1_000_000)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: _Library(0))
    assert not allocator.keep_freed_memory(1_000_000)
