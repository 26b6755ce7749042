"""A ledger of a broker's answers to sends, kept outside the broker: the oracle of crash and fault tests.

    sent ──► acknowledged   SEND_OK: the message stays at its place
        ├──► refused        an error that says that nothing was stored: the message never appears
        └──► undecided      no answer, or one like FLUSH_DISK_TIMEOUT: the message may be stored or not

The first check after a fault decides undecided messages: found ones must stay, the others must not appear
later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rmq_remoting.message import MessageExt

Queue = tuple[str, int]
Place = tuple[Queue, int]

_HASH_BYTES = 12


@dataclass(frozen=True, slots=True)
class Verdict:
    """Numbers of messages that a check found."""

    stored: int
    acknowledged: int
    undecided_found: int
    undecided_gone: int

    def __str__(self) -> str:
        return (
            f"{self.stored} stored, {self.acknowledged} acknowledged, of the undecided "
            f"{self.undecided_found} there and {self.undecided_gone} not"
        )


class Ledger:
    """Messages by the hash of their body; each body has to be different."""

    def __init__(self) -> None:
        self._at: dict[Place, bytes] = {}
        self._ids: dict[Place, str] = {}
        self._undecided: set[bytes] = set()
        self._never: set[bytes] = set()
        self._seen: dict[Place, bytes] = {}
        self.acknowledged_count = 0
        self.refused_count = 0
        self.unknown_count = 0

    # --- answers to clients ---

    def sending(self, bodies: Iterable[bytes]) -> None:
        """Note messages before they are sent."""
        self._undecided.update(map(_hash, bodies))

    def acknowledged(
        self, queue: Queue, first_offset: int, ids: Sequence[str], bodies: Sequence[bytes]
    ) -> None:
        """Note a send answered SEND_OK. AssertionError if its place was another message's."""
        assert len(ids) == len(bodies), f"{len(bodies)} messages got {len(ids)} ids"
        for index, (message_id, body) in enumerate(zip(ids, bodies, strict=True)):
            place, digest = (queue, first_offset + index), _hash(body)
            assert place not in self._at, f"queue offset used twice: {place}"
            self._undecided.remove(digest)
            self._at[place] = digest
            self._ids[place] = message_id
        self.acknowledged_count += len(bodies)

    def refused(self, bodies: Iterable[bytes]) -> None:
        """Note a send answered with an error that says that nothing was stored."""
        for digest in map(_hash, bodies):
            self._undecided.remove(digest)
            self._never.add(digest)
            self.refused_count += 1

    def unknown(self, bodies: Sequence[bytes]) -> None:
        """Note a send answered with an error after which the message may be stored or not."""
        self.unknown_count += len(bodies)

    def saw(self, message: MessageExt) -> None:
        """Note a message that a consumer received. AssertionError if another was seen at its place."""
        place, digest = ((message.topic, message.queue_id), message.queue_offset), _hash(message.body)
        before = self._seen.setdefault(place, digest)
        assert before == digest, f"consumers saw two messages at {place}"
        assert self._at.get(place, digest) == digest, f"a consumer saw another message at {place}"

    @property
    def seen_count(self) -> int:
        """Number of messages that consumers have seen."""
        return len(self._seen)

    # --- stored messages ---

    def check(self, stored: Mapping[Queue, Sequence[MessageExt]]) -> Verdict:
        """Check that acknowledged and seen messages are at their places, besides undecided ones alone.

        `stored`: all messages of all queues, in order; cleaning may have removed a queue's first messages.
        AssertionError names the first violation.
        """
        found: dict[Place, bytes] = {}
        begins: dict[Queue, int] = {}
        for queue, messages in stored.items():
            begins[queue] = begin = messages[0].queue_offset if messages else 0
            offsets = [message.queue_offset for message in messages]
            assert offsets == list(range(begin, begin + len(messages))), f"gaps or duplicates in {queue}"
            for message in messages:
                found[queue, message.queue_offset] = _hash(message.body)
        assert len(set(found.values())) == len(found), "a message is stored twice"
        self._check_kept(found, begins, stored)
        extra = {place: digest for place, digest in found.items() if place not in self._at}
        for place, digest in extra.items():
            assert digest not in self._never, f"the message at {place} was refused, or was gone before"
            assert digest in self._undecided, f"the message at {place} was never sent, or belongs elsewhere"
        return self._decide_undecided(extra, len(found))

    def forget_lost(self, stored: Mapping[Queue, Sequence[MessageExt]]) -> int:
        """Drop the messages behind the ends of the queues; return how many of them were acknowledged.

        For faults that may take the newest messages: a power cut under asynchronous flush.
        """
        ends = {queue: messages[-1].queue_offset + 1 if messages else 0 for queue, messages in stored.items()}
        lost = [place for place in self._at if place[1] >= ends[place[0]]]
        for place in lost:
            self._never.add(self._at.pop(place))
            self._ids.pop(place, None)
        for place in [place for place in self._seen if place[1] >= ends[place[0]]]:
            del self._seen[place]
        return len(lost)

    def forget_cleaned(self, begins: Mapping[Queue, int]) -> None:
        """Drop the messages before the beginnings of the queues, which may be deleted."""
        for places in (self._at, self._ids, self._seen):
            for place in [place for place in places if place[1] < begins[place[0]]]:
                del places[place]

    def _check_kept(
        self,
        found: Mapping[Place, bytes],
        begins: Mapping[Queue, int],
        stored: Mapping[Queue, Sequence[MessageExt]],
    ) -> None:
        for what, places in (("acknowledged", self._at), ("seen by a consumer", self._seen)):
            for (queue, offset), digest in places.items():
                if offset < begins[queue]:
                    continue  # cleaned
                end = begins[queue] + len(stored[queue])
                assert offset < end, f"lost: {queue} offset {offset}, {what}; the queue ends at {end}"
                assert found[queue, offset] == digest, f"{queue} offset {offset}, {what}, is another message"
        for (queue, offset), message_id in self._ids.items():
            if offset >= begins[queue]:
                found_id = stored[queue][offset - begins[queue]].offset_msg_id
                assert found_id == message_id, f"{queue} offset {offset} is elsewhere in the log"

    def _decide_undecided(self, extra: Mapping[Place, bytes], stored: int) -> Verdict:
        self._at.update(extra)
        self._undecided.difference_update(extra.values())
        gone = len(self._undecided)
        self._never |= self._undecided
        self._undecided.clear()
        return Verdict(stored, self.acknowledged_count, len(extra), gone)


def _hash(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_HASH_BYTES).digest()
