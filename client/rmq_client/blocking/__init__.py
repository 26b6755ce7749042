"""The same classes for programs without an event loop.

Each method runs the asyncio method on a background loop and waits for it. Arguments, results and errors are
the same. Objects may be used from several threads, but not in callbacks that run on the background loop
(those of `listen_to_queues`, and coroutines as listeners). A blocking call there raises UsageError.

::

    with Producer("127.0.0.1:9876", group="shop") as producer:
        producer.send(Message("orders", b"..."))
"""

from __future__ import annotations

from .admin import Admin
from .background import run
from .consumers import PullConsumer, PushConsumer, SimpleConsumer
from .deduplicator import Deduplicator
from .producer import Producer, Transaction
from .raw_puller import RawPuller

__all__ = [
    "Admin",
    "Deduplicator",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "RawPuller",
    "SimpleConsumer",
    "Transaction",
    "run",
]
