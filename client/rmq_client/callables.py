"""Inspection of callables that an application passes."""

from __future__ import annotations

import functools
import inspect


def is_coroutine_function(function: object) -> bool:
    """Whether a call returns a coroutine; also for partials and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # its kind is asked, not whether it is there
    )
