"""A sentence for platforms without what the broker needs; to be imported before the broker's modules."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("fcntl") is None:
    raise ImportError(
        "rmq_testing runs the broker in this process, and the broker needs Linux: run these tests in a "
        "container or in WSL, or use a broker elsewhere"
    )
