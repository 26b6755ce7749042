"""What a forked process must forget: it has none of the threads of its parent."""

from __future__ import annotations

import os
from collections.abc import Callable


def after_fork_in_child(work: Callable[[], object]) -> None:
    """Have a function called in each process that is forked from this one. Windows has no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=work)
