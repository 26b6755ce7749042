"""One broker on a store directory, ours or Apache's, and what Apache's Java client gets from it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmq_remoting.sys_flags import MessageSysFlag
from tests.interop.foreign import JavaShell
from tests.support.apache import ApacheBroker
from tests.support.outcome import Event, Option, Outcome
from tests.support.own_servers import OwnBroker

Queue = tuple[str, int]
Stored = dict[Queue, list[Event]]

# What a pull or a look-up answers at most.
MOST_BY_KEY = 64
MOST_BY_UNIQUE_KEY = 32

_INDEX_SECONDS = 20.0
_INDEX_POLL_SECONDS = 0.2
# What the client itself adds, and what differs from broker to broker.
_NOT_STORED = ("MIN_OFFSET", "MAX_OFFSET")
_COMPARED: tuple[str, ...] = (
    "topic",
    "queueId",
    "queueOffset",
    "commitLogOffset",
    "storeSize",
    "flag",
    "sysFlag",
    "bornTimestamp",
    "bornHost",
    "storeTimestamp",
    "storeHost",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "bodyCRC",
    "bodySize",
    "bodySha256",
)


@dataclass(frozen=True, slots=True)
class LookUp:
    """A key, and how it is looked for; times in ms."""

    topic: str
    key: str
    unique: bool = False
    begin_ms: int = 0
    end_ms: int = 2**63 - 1
    most: int = MOST_BY_KEY

    def option(self) -> str:
        """As LookUpCommand reads it."""
        return json.dumps(
            {
                "topic": self.topic,
                "key": self.key,
                "unique": self.unique,
                "begin": self.begin_ms,
                "end": self.end_ms,
                "max": self.most,
            }
        )


def comparable(message: Mapping[str, Any]) -> Event:
    """A message as a client got it, without what does not come from the store.

    A client that has decompressed a body takes that bit out of the flags: here it is always out.
    """
    properties = {key: value for key, value in message["properties"].items() if key not in _NOT_STORED}
    flags = message["sysFlag"] & ~MessageSysFlag.COMPRESSED
    return {name: message[name] for name in _COMPARED} | {"sysFlag": flags, "properties": properties}


def check_begins_with(now: Stored, before: Stored) -> None:
    """That each queue holds what it held before, and perhaps more."""
    for queue, messages in before.items():
        assert len(now[queue]) >= len(messages), f"{queue} ends at {len(now[queue])}, not {len(messages)}"
        for message, expected in zip(now[queue], messages, strict=False):
            differing = {
                name: (message[name], expected[name]) for name in expected if message[name] != expected[name]
            }
            assert not differing, f"{queue}: of message {expected['queueOffset']} differ {differing}"


class Serving:
    """A running broker, asked by the Java client."""

    def __init__(self, shell: JavaShell, namesrv_address: str, broker: OwnBroker | ApacheBroker) -> None:
        self.broker = broker
        self._shell = shell
        self._at: dict[str, Any] = {"namesrv": namesrv_address}

    async def run(self, *words: str, **options: Any) -> Outcome:
        """One command that has to succeed."""
        outcome = await self._shell.run(*words, **self._at, **options)
        assert outcome.ok, f"{words}: {outcome.result}"  # not all that was received before
        return outcome

    async def create_topic(self, topic: str, queues: int, **options: Option) -> None:
        """A topic, and wait for its route."""
        at = {"topic": topic, "queues": queues, "broker_addr": self.broker.address, **options}
        created = await self.run("admin", "createAndUpdateTopicConfig", **at)
        assert created.result["routeVisible"]

    async def send(self, topic: str, **options: Option) -> Outcome:
        """Messages, all of which have to be stored."""
        sent = await self.run("send", topic=topic, **options)
        assert {result["status"] for result in sent.sent} == {"SEND_OK"}
        return sent

    async def scan(self, queues: Iterable[Queue]) -> Stored:
        """All messages of the queues, from the first that is there."""
        names = [f"{topic}@{queue_id}" for topic, queue_id in queues]
        scanned = await self.run("scan", group="scan", queue=names)
        stored: Stored = {(event["topic"], event["queueId"]): [] for event in scanned.events[:-1]}
        for message in scanned.messages:
            stored[message["topic"], message["queueId"]].append(comparable(message))
        for queue in (event for event in scanned.events if event["event"] == "queue"):
            assert queue["status"] in ("NO_NEW_MSG", "OFFSET_ILLEGAL"), queue
            messages = stored[queue["topic"], queue["queueId"]]
            assert [message["queueOffset"] for message in messages] == list(
                range(max(0, queue["minOffset"]), queue["maxOffset"])
            ), queue
        return stored

    async def look_up(self, wanted: Sequence[LookUp]) -> list[list[int]]:
        """Where in the log each of the keys is found, in the order of the answers."""
        options = [each.option() for each in wanted]
        found = await self.run("lookup", broker_addr=self.broker.address, key=options)
        return list(found.result["keys"])

    async def finds(self, expected: Mapping[LookUp, Sequence[int]]) -> None:
        """Wait until the keys are found where they are: an index may be built again in the background."""
        deadline = time.monotonic() + _INDEX_SECONDS
        wrong = dict(expected)
        while True:
            found = dict(zip(wrong, await self.look_up(list(wrong)), strict=True))
            wrong = {key: offsets for key, offsets in wrong.items() if found[key] != list(offsets)}
            if not wrong:
                return
            if time.monotonic() > deadline:
                key = next(iter(wrong))
                raise AssertionError(f"{len(wrong)} keys; {key}: found {found[key]}, expected {wrong[key]}")
            await asyncio.sleep(_INDEX_POLL_SECONDS)

    async def view(self, offsets: Iterable[int]) -> list[Event]:
        """The messages at some places in the log, by their offset message ids."""
        options = [str(offset) for offset in offsets]
        viewed = await self.run("lookup", broker_addr=self.broker.address, view=options)
        return [comparable(message) for message in viewed.result["views"]]

    async def commit(self, topic: str, group: str, queue_id: int, count: int) -> int:
        """Read some messages on from where the group was, and commit; the offset it began at."""
        options = {"api": "old", "queue": queue_id, "count": count, "max": count}
        pulled = await self.run("pull", topic=topic, group=group, commit=True, **options)
        return int(pulled.messages[0]["queueOffset"])

    async def addresses(self, topic: str) -> Mapping[str, str]:
        """Where clients are sent for the topic."""
        route = await self.run("admin", "examineTopicRouteInfo", topic=topic)
        return dict(route.result["brokers"][0]["addresses"])
