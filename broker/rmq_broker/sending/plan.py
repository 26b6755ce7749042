"""The plan of a send, a value: all that storing and answering depend on."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..store.api import BatchMessages
from .kinds import SendKind

NO_MESSAGES: Final = BatchMessages([], [], [], b"", [])


class SendPlan(NamedTuple):
    """How one send is stored and answered.

    `properties` are stored with the message; those of a batch belong to each of its messages. `unique_key`
    is the producer's key (property UNIQ_KEY); a batch may have none, which is empty. `delay_level` is 0 for
    every kind but DELAYED. `tags_code` is the hash of the tags in the properties; for redirected messages
    the message writer finds it out.
    """

    kind: SendKind
    properties: bytes
    unique_key: bytes
    tags_code: int
    delay_level: int = 0
    messages: BatchMessages = NO_MESSAGES  # of BATCH and UNIT
    has_keys: bool = False  # whether a message of a batch may have the property KEYS
