"""A broker on a store directory, of this project or Apache's, read by Apache's Java client."""

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

# Maximum number of messages in the answer to a pull or a look-up.
MOST_BY_KEY = 64
MOST_BY_UNIQUE_KEY = 32

_INDEX_SECONDS = 20.0
_INDEX_POLL_SECONDS = 0.2
# Added by the client, or different on each broker.
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
    """A look-up of a key; times in ms."""

    topic: str
    key: str
    unique: bool = False
    begin_ms: int = 0
    end_ms: int = 2**63 - 1
    most: int = MOST_BY_KEY

    def option(self) -> str:
        """The look-up in the form that LookUpCommand parses."""
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
    """Return a client's message without the fields that do not come from the store.

    A client that decompresses a body clears a bit of the flags, so this bit is always cleared here.
    """
    properties = {key: value for key, value in message["properties"].items() if key not in _NOT_STORED}
    flags = message["sysFlag"] & ~MessageSysFlag.COMPRESSED
    return {name: message[name] for name in _COMPARED} | {"sysFlag": flags, "properties": properties}


def check_begins_with(now: Stored, before: Stored) -> None:
    """Check that each queue begins with the messages that it had before."""
    for queue, messages in before.items():
        assert len(now[queue]) >= len(messages), f"{queue} ends at {len(now[queue])}, not {len(messages)}"
        for message, expected in zip(now[queue], messages, strict=False):
            differing = {
                name: (message[name], expected[name]) for name in expected if message[name] != expected[name]
            }
            assert not differing, f"{queue}: of message {expected['queueOffset']} differ {differing}"


class Serving:
    """A running broker, and the Java client for it."""

    def __init__(self, shell: JavaShell, namesrv_address: str, broker: OwnBroker | ApacheBroker) -> None:
        self.broker = broker
        self._shell = shell
        self._at: dict[str, Any] = {"namesrv": namesrv_address}

    async def run(self, *words: str, **options: Any) -> Outcome:
        """Run one command, which must succeed."""
        outcome = await self._shell.run(*words, **self._at, **options)
        assert outcome.ok, f"{words}: {outcome.result}"  # without the messages received before
        return outcome

    async def create_topic(self, topic: str, queues: int, **options: Option) -> None:
        """Create a topic, and wait for its route."""
        at = {"topic": topic, "queues": queues, "broker_addr": self.broker.address, **options}
        created = await self.run("admin", "createAndUpdateTopicConfig", **at)
        assert created.result["routeVisible"]

    async def send(self, topic: str, **options: Option) -> Outcome:
        """Send messages, all of which must be stored."""
        sent = await self.run("send", topic=topic, **options)
        assert {result["status"] for result in sent.sent} == {"SEND_OK"}
        return sent

    async def scan(self, queues: Iterable[Queue]) -> Stored:
        """Return all messages of the queues, from the first one."""
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
        """Return the log offsets found for each key, in the order of the answers."""
        options = [each.option() for each in wanted]
        found = await self.run("lookup", broker_addr=self.broker.address, key=options)
        return list(found.result["keys"])

    async def finds(self, expected: Mapping[LookUp, Sequence[int]]) -> None:
        """Wait until the keys are found at their places: an index may be rebuilt in the background."""
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
        """Return the messages at some log offsets, by their offset message ids."""
        options = [str(offset) for offset in offsets]
        viewed = await self.run("lookup", broker_addr=self.broker.address, view=options)
        return [comparable(message) for message in viewed.result["views"]]

    async def commit(self, topic: str, group: str, queue_id: int, count: int) -> int:
        """Read some messages from the group's offset on, and commit; return the first offset."""
        options = {"api": "old", "queue": queue_id, "count": count, "max": count}
        pulled = await self.run("pull", topic=topic, group=group, commit=True, **options)
        return int(pulled.messages[0]["queueOffset"])

    async def addresses(self, topic: str) -> Mapping[str, str]:
        """Return the broker addresses in the topic's route."""
        route = await self.run("admin", "examineTopicRouteInfo", topic=topic)
        return dict(route.result["brokers"][0]["addresses"])
