"""Checks of a run's history against the logs on disk. Each raises AssertionError with what it found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.support.stores import records_on_disk

from .history import Committed, Delivery, Place, Queue, Send, Term

# A replica takes offsets over every 10 s, and at once when it has found its master again.
OFFSETS_OLD_SECONDS: Final = 60.0
_SHOWN: Final = 5

Log = Mapping[Place, str]


def read_log(store: Path, topics: Iterable[str]) -> dict[Place, str]:
    """Return the bodies of these topics in a stopped broker's log, by place."""
    wanted = set(topics)
    found: dict[Place, str] = {}
    for record in records_on_disk(store):
        message = record.message
        if message.topic in wanted:
            place = (message.topic, message.queue_id), message.queue_offset
            assert place not in found, f"two records in the log are {_at(place)}"
            found[place] = message.body.decode()
    return found


def nothing_acknowledged_is_lost(sends: Iterable[Send], log: Log) -> None:
    """Every message that was answered SEND_OK is in the log, where the answer said."""
    lost = [send for send in sends if send.is_acknowledged and log.get(send.place) != send.body]
    assert not lost, _list(
        f"{len(lost)} acknowledged messages are lost",
        (f"{_at(send.place)}: {send.body!r}, there is {log.get(send.place)!r}" for send in lost),
    )


def nothing_is_stored_twice(sends: Iterable[Send], log: Log) -> None:
    """The log has no message twice, and none that nobody has sent."""
    bodies = list(log.values())
    assert len(set(bodies)) == len(bodies), f"{len(bodies) - len(set(bodies))} messages are stored twice"
    unknown = set(bodies) - {send.body for send in sends}
    assert not unknown, _list(f"{len(unknown)} stored messages were never sent", map(repr, unknown))


def no_place_was_given_twice(sends: Iterable[Send]) -> None:
    """No two acknowledged messages have the same offset of the same queue."""
    seen: dict[Place, Send] = {}
    for send in sends:
        if send.is_acknowledged:
            other = seen.setdefault(send.place, send)
            assert other is send, (
                f"{_at(send.place)} was given twice: {other.body!r} by {other.broker}, "
                f"{send.body!r} by {send.broker}"
            )


def only_the_master_accepted(sends: Iterable[Send], terms: Sequence[Term], *, are_exact: bool = True) -> None:
    """No two brokers were the master at the same time, and none accepted a message outside of its terms.

    Terms that are not exact include the time before and after, in which they were looked for.
    """
    ordered = sorted(terms, key=lambda term: term.began)
    for one, following in pairwise(ordered if are_exact else []):
        assert one.ended is not None and one.ended <= following.began, (
            f"two masters at the same time: {one} and {following}"
        )
    for send in sends:
        if send.broker:
            assert any(_during(send, term) for term in ordered if term.broker == send.broker), (
                f"{send.broker} accepted {send.body!r} at {send.sent_at:.3f} to {send.answered_at:.3f}, and "
                f"was not the master then: {[term for term in ordered if term.broker == send.broker]}"
            )


def until_the_next_accepted(terms: Sequence[Term], sends: Iterable[Send]) -> list[Term]:
    """Return the terms, each until another broker answered the first send that began after it.

    A controller elects another broker while the master is there. Until that broker has stopped following, it
    acknowledges what the old master sends it, and has it when it starts as the master.
    """
    accepted = sorted((send.answered_at, send.sent_at, send.broker) for send in sends if send.is_acknowledged)
    longer = []
    for term in terms:
        following = [
            at
            for at, sent_at, broker in accepted
            if term.ended is not None and broker != term.broker and sent_at >= term.ended
        ]
        longer.append(Term(term.broker, term.began, min(following) if following else term.ended))
    return longer


def _during(send: Send, term: Term) -> bool:
    # An answer may arrive after the master has ended, and a send may wait for the next one.
    return send.answered_at >= term.began and (term.ended is None or send.sent_at <= term.ended)


def deliveries_are_in_the_log(deliveries: Iterable[Delivery], log: Log) -> None:
    """Consumers were given only messages that are in the log still: none that a failover took back."""
    bodies = set(log.values())
    strange = [
        delivery
        for delivery in deliveries
        if (log.get(delivery.place) != delivery.body if delivery.is_first else delivery.body not in bodies)
    ]
    assert not strange, _list(
        f"{len(strange)} delivered messages are not in the log",
        (f"{each.group} {_at(each.place)}: {each.body!r} at {each.at:.3f}" for each in strange),
    )


def everything_is_delivered(
    sends: Iterable[Send], deliveries: Iterable[Delivery], groups: Iterable[str]
) -> None:
    """Every group was given every acknowledged message."""
    acknowledged = {send.body: send for send in sends if send.is_acknowledged}
    given: dict[str, set[str]] = {group: set() for group in groups}
    for delivery in deliveries:
        given[delivery.group].add(delivery.body)
    for group, bodies in given.items():
        missing = [send for body, send in acknowledged.items() if body not in bodies]
        assert not missing, _list(
            f"group {group} was not given {len(missing)} of {len(acknowledged)} acknowledged messages",
            (f"{_at(send.place)}: {send.body!r} of {send.answered_at:.3f}" for send in missing),
        )


def offsets_never_go_back(committed: Iterable[Committed], terms: Sequence[Term]) -> None:
    """No master's committed offsets fall, and a new master has no older ones than replicas may have."""
    by_queue: dict[tuple[str, Queue], list[Committed]] = {}
    for each in committed:
        by_queue.setdefault((each.group, (each.topic, each.queue_id)), []).append(each)
    for samples in by_queue.values():
        samples.sort(key=lambda each: each.at)
        for before, after in pairwise(samples):
            if _term_of(before, terms) is _term_of(after, terms):
                assert after.offset >= before.offset, f"an offset went back: {before}, then {after}"
        old_enough = 0
        for index, sample in enumerate(samples):
            while samples[old_enough].at < sample.at - OFFSETS_OLD_SECONDS:
                old_enough += 1
            if old_enough:
                before = max(samples[:old_enough], key=lambda each: each.offset)
                assert sample.offset >= before.offset, (
                    f"an offset of more than {OFFSETS_OLD_SECONDS:.0f} s ago is lost: {before}, "
                    f"then {sample} (sample {index})"
                )


def _term_of(sample: Committed, terms: Sequence[Term]) -> Term | None:
    found = [term for term in terms if term.broker == sample.broker and term.began <= sample.at]
    return max(found, key=lambda term: term.began, default=None)


def logs_are_the_same(stores: Mapping[str, Path]) -> int:
    """Compare the commit logs of stopped brokers byte for byte over the range that all have; return its end.

    They must also end at the same offset.
    """
    files = {name: _log_files(store) for name, store in stores.items()}
    begins = {name: min(parts, default=0) for name, parts in files.items()}
    ends = {name: _end(store) for name, store in stores.items()}
    assert len(set(ends.values())) == 1, f"the logs end at different offsets: {ends}"
    (first, *others), position, end = list(stores), max(begins.values()), next(iter(ends.values()))
    while position < end:
        base = max(start for start in files[first] if start <= position)
        content = files[first][base].read_bytes()[position - base :][: end - position]
        for name in others:
            parts = files[name]
            assert base in parts, f"the files of the logs of {first} and {name} begin at different offsets"
            other = parts[base].read_bytes()[position - base :][: len(content)]
            if other != content:
                at = next(i for i, (one, two) in enumerate(zip(content, other, strict=True)) if one != two)
                raise AssertionError(f"the logs of {first} and {name} differ at offset {position + at}")
        position += len(content)
    return end


def _log_files(store: Path) -> dict[int, Path]:
    return {int(path.name): path for path in (store / "commitlog").iterdir()}


def _end(store: Path) -> int:
    end = 0
    for record in records_on_disk(store):
        end = record.message.physical_offset + len(record.raw)
    return end


def _at(place: Place) -> str:
    (topic, queue_id), offset = place
    return f"{topic}/{queue_id}@{offset}"


def _list(heading: str, items: Iterable[str]) -> str:
    shown = list(items)
    more = [f"… and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    return "\n  ".join([heading, *shown[:_SHOWN], *more])
