"""A FastStream broker for RocketMQ: subscribers and publishers as decorators, over the SDK of this project.

It is written against FastStream's released API, and against `rmq_client` alone.
"""

from __future__ import annotations

from rmq_client import Sql

from .annotations import RocketMessage
from .broker import RocketBroker
from .options import ConsumerOptions, ProducerOptions
from .response import RocketPublishCommand, RocketResponse
from .router import RocketPublisher, RocketRoute, RocketRouter
from .testing import TestRocketBroker

__all__ = (
    "ConsumerOptions",
    "ProducerOptions",
    "RocketBroker",
    "RocketMessage",
    "RocketPublishCommand",
    "RocketPublisher",
    "RocketResponse",
    "RocketRoute",
    "RocketRouter",
    "Sql",
    "TestRocketBroker",
)
