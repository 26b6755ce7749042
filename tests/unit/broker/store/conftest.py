"""The tests need no real fsync: they simulate crashes of the machine by changing files."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests open thousands of stores, each with a few files to sync."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)
