"""Annotations of handler parameters that FastStream fills in: `message: RocketMessage`."""

from __future__ import annotations

from typing import Annotated

from faststream import Context, ContextRepo, Logger, NoCast

from rmq_client import Producer as SdkProducer

from .broker import RocketBroker as Broker
from .message import RocketBatchMessage as BatchMessage
from .message import RocketMessage as Message

__all__ = (
    "ContextRepo",
    "Logger",
    "NoCast",
    "Producer",
    "RocketBatchMessage",
    "RocketBroker",
    "RocketMessage",
)

RocketMessage = Annotated[Message, Context("message")]
"""The message of the call, of a subscriber with `batch=False`."""
RocketBatchMessage = Annotated[BatchMessage, Context("message")]
"""The messages of the call, of a subscriber with `batch=True`."""
RocketBroker = Annotated[Broker, Context("broker")]
"""The broker of the subscriber."""
Producer = Annotated[SdkProducer, Context("broker._connection")]
"""The SDK's producer of the broker, for features that FastStream has no word for, as transactions."""
