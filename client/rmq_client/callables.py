"""What applications hand over to be called."""

from __future__ import annotations

import functools
import inspect


def is_coroutine_function(function: object) -> bool:
    """Whether calling it gives a coroutine; also of partials and of objects that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # its kind is asked, not whether it is there
    )
