"""The asyncio and the blocking face of `Admin`."""

from __future__ import annotations

import inspect

from rmq_client import Admin, blocking
from tests.support.rows import each_row

_CALLS = [
    name for name, _ in inspect.getmembers(Admin, inspect.iscoroutinefunction) if not name.startswith("_")
]


@each_row("name", _CALLS)
def test_the_blocking_face_has_every_call_with_its_text(name: str) -> None:
    if name not in ("start", "stop"):
        assert getattr(blocking.Admin, name).__wrapped__ is getattr(Admin, name)


@each_row("name", _CALLS)
def test_every_call_names_its_errors_or_has_none(name: str) -> None:
    text = inspect.getdoc(getattr(Admin, name))
    assert text is not None and ("Raises" in text or name == "stop")
