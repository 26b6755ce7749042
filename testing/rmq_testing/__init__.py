"""Tests of applications that use RocketMQ: a broker that starts in milliseconds, fixtures, faults, time.

A name is imported at its first use: pytest loads this package with its plugin, also in projects whose tests
need no broker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rmq_remoting.codes import RequestCode, ResponseCode

    from .broker import BrokerForTests
    from .expectations import ExpectationFailed
    from .faults import OPERATIONS, Fault, Faults
    from .process import BrokerProcess

# The module of each name: the imports above, for the run time.
_MODULES: Final = {
    "OPERATIONS": ".faults",
    "BrokerForTests": ".broker",
    "BrokerProcess": ".process",
    "ExpectationFailed": ".expectations",
    "Fault": ".faults",
    "Faults": ".faults",
    "RequestCode": "rmq_remoting.codes",
    "ResponseCode": "rmq_remoting.codes",
}

__all__ = [
    "OPERATIONS",
    "BrokerForTests",
    "BrokerProcess",
    "ExpectationFailed",
    "Fault",
    "Faults",
    "RequestCode",
    "ResponseCode",
]


def __getattr__(name: str) -> Any:
    """Import a name at its first use. Raises AttributeError."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module, __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
