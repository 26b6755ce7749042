"""The table that shards have in common: reports, requests, restarts, in every order."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq_broker.shards.shared_table import Difference, SharedTable
from tests.support.examples import examples


def _joined(shards: int = 2) -> SharedTable[str]:
    """Return a table whose shards have started without entries."""
    table: SharedTable[str] = SharedTable(shards)
    for shard in range(shards):
        table.begin(shard)
        table.end(shard)
    return table


def test_a_new_entry_of_a_shard_is_sent_to_the_others() -> None:
    table = _joined(3)

    assert table.report(1, "T", "a")

    assert table.differences(0, 10) == table.differences(2, 10) == [Difference("T", "a", None)]
    assert table.differences(1, 10) == []


def test_the_report_of_a_request_is_not_sent_on() -> None:
    table = _joined()
    table.report(0, "T", "a")
    table.differences(1, 10)

    assert not table.report(1, "T", "a")
    assert not table.applied(1, "T", "a")

    assert table.differences(0, 10) == table.differences(1, 10) == []


def test_a_change_names_the_value_that_the_other_shard_has() -> None:
    table = _joined()
    table.report(0, "T", "a")
    table.applied(1, "T", "a")

    table.report(0, "T", "b")

    assert table.differences(1, 10) == [Difference("T", "b", "a")]


def test_a_deletion_is_sent_to_the_others() -> None:
    table = _joined()
    table.report(0, "T", "a")
    table.applied(1, "T", "a")

    assert table.report(1, "T", None)

    assert table.differences(0, 10) == [Difference("T", None, "a")]
    assert not table.report(0, "T", None)
    assert not table.applied(0, "T", None)
    assert table.behind_count(0) == 0


def test_a_missing_entry_is_created_again_not_deleted() -> None:
    table = _joined()
    table.report(0, "T", "a")
    table.applied(1, "T", "a")

    table.begin(1)
    table.end(1)

    assert table.entries == {"T": "a"}
    assert table.differences(1, 10) == [Difference("T", "a", None)]


def test_a_shard_that_was_down_follows_a_deletion() -> None:
    table = _joined()
    table.report(0, "T", "a")
    table.applied(1, "T", "a")
    table.report(0, "T", None)

    table.begin(1)
    assert not table.report(1, "T", "a")
    table.end(1)

    assert table.differences(1, 10) == [Difference("T", None, "a")]


def test_a_deletion_has_no_effect_where_the_entry_is_missing_anyway() -> None:
    table = _joined()
    table.report(0, "T", "a")
    table.applied(1, "T", "a")
    table.report(0, "T", None)

    table.begin(1)
    table.end(1)

    assert table.differences(1, 10) == []


def test_a_change_during_the_request_wins_over_it() -> None:
    table = _joined()
    table.report(0, "T", "a")
    table.differences(1, 10)
    table.report(1, "T", "a")
    table.report(1, "T", "b")

    assert table.applied(1, "T", "a")

    assert table.entries == {"T": "b"}
    assert table.differences(0, 10) == [Difference("T", "b", "a")]


def test_a_report_from_before_the_request_does_not_count() -> None:
    table = _joined()
    table.report(0, "T", "a")
    table.report(1, "T", "older")

    assert table.differences(1, 10) == [Difference("T", "a", "older")]
    table.report(1, "T", "a")
    assert not table.applied(1, "T", "a")
    assert table.entries == {"T": "a"}


def test_an_entry_that_changes_during_the_request_is_sent_again() -> None:
    table = _joined()
    table.report(0, "T", "a")
    table.differences(1, 10)
    table.report(0, "T", "b")

    table.applied(1, "T", "a")

    assert table.differences(1, 10) == [Difference("T", "b", "a")]


def test_a_shard_that_lost_an_entry_has_none_of_it() -> None:
    table = _joined()
    table.report(0, "T", "a")
    table.report(1, "T", "older")

    table.begin(1)
    table.end(1)

    assert table.differences(1, 10) == [Difference("T", "a", None)]


def test_a_shard_has_its_value_while_the_others_change() -> None:
    table = _joined()
    table.report(0, "T", "a")
    table.report(0, "T", "b")

    assert table.differences(1, 10) == [Difference("T", "b", None)]


def test_a_deletion_on_a_shard_that_has_not_got_the_entry_yet_does_not_count() -> None:
    """A tool deletes a topic on both shards and creates it again; the second deletion is reported late."""
    table = _joined()
    table.report(0, "T", "old")
    table.applied(1, "T", "old")
    table.report(0, "T", None)
    table.report(0, "T", "new")

    table.report(1, "T", None)

    assert table.entries == {"T": "new"}
    assert table.differences(1, 10) == [Difference("T", "new", None)]


def test_an_excluded_entry_is_not_shared_until_it_is_deleted() -> None:
    table = _joined()
    table.report(0, "T", "a")
    table.exclude("T")

    assert not table.report(1, "T", "b")
    assert table.behind_count(0) == table.behind_count(1) == 0
    assert not table.report(1, "T", None)
    assert table.report(1, "T", "c")


def test_entries_can_be_left_out_and_are_bounded() -> None:
    table = _joined()
    for name in "abc":
        table.report(0, name, "x")

    assert [each.name for each in table.differences(1, 2)] == ["a", "b"]
    assert [each.name for each in table.differences(1, 2, but=["a"])] == ["b", "c"]


def test_a_later_supervisor_goes_on_with_the_deletions_of_an_earlier_one() -> None:
    before = _joined()
    for name in ("kept", "deleted"):
        before.report(0, name, "x")
        before.applied(1, name, "x")
    before.report(0, "deleted", None)

    table: SharedTable[str] = SharedTable(2)
    table.restore(before.entries, before.behind_names())
    for shard, names in ((1, ("kept", "deleted")), (0, ("kept",))):
        table.begin(shard)
        for name in names:
            table.report(shard, name, "x")
        table.end(shard)

    assert table.entries == {"kept": "x"}
    assert table.differences(0, 10) == []
    assert table.differences(1, 10) == [Difference("deleted", None, "x")]


def test_a_change_that_a_supervisor_did_not_see_is_the_newer_one() -> None:
    table: SharedTable[str] = SharedTable(2)
    table.restore({"T": "a"}, [[], []])
    table.begin(0)
    table.report(0, "T", "a")
    table.end(0)
    table.begin(1)

    assert table.report(1, "T", "b")

    assert table.differences(0, 10) == [Difference("T", "b", "a")]


def test_a_further_shard_gets_all_entries() -> None:
    table: SharedTable[str] = SharedTable(3)
    table.restore({"T": "a"}, [[], []])
    for shard in range(3):
        table.begin(shard)
        if shard < 2:
            table.report(shard, "T", "a")
        table.end(shard)

    assert table.differences(2, 10) == [Difference("T", "a", None)]


class _Shard:
    """A shard with a stream of reports and answers to the supervisor, and one of requests to it."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.is_up = False
        self.has_reported = False
        self.outgoing: deque[Callable[[], object]] = deque()
        self.incoming: deque[Difference[str]] = deque()
        self.unanswered = 0


class _Host:
    """Shards and their supervisor, whose every step the test chooses."""

    def __init__(self, shards: int) -> None:
        self.shards = [_Shard() for _ in range(shards)]
        self.table: SharedTable[str] = SharedTable(shards)
        self.ever_deleted: set[str] = set()
        for number in range(shards):
            self.start(number)

    def start(self, number: int) -> None:
        shard = self.shards[number]
        if shard.is_up:
            return
        shard.is_up = True
        self.table.begin(number)
        for name in shard.entries:
            self._report(number, name)
        shard.has_reported = False
        shard.outgoing.append(lambda: self._reported(number))

    def crash(self, number: int) -> None:
        shard = self.shards[number]
        shard.is_up = False
        shard.outgoing.clear()
        shard.incoming.clear()
        shard.unanswered = 0

    def change(self, number: int, name: str, entry: str | None) -> None:
        """An administrator changes an entry."""
        if not self.shards[number].is_up:
            return
        if entry is None:
            self.ever_deleted.add(name)
        self._set(number, name, entry)

    def send(self, number: int) -> None:
        """The supervisor sends a batch of requests once the shard has answered the last one."""
        shard = self.shards[number]
        if shard.is_up and shard.has_reported and not shard.unanswered:
            shard.incoming.extend(self.table.differences(number, 2))
            shard.unanswered = len(shard.incoming)

    def run(self, number: int) -> None:
        """The shard runs a request, and answers it."""
        shard = self.shards[number]
        if shard.incoming:
            request = shard.incoming.popleft()
            self._set(number, request.name, request.wanted)
            shard.outgoing.append(lambda: self._answered(number, request))

    def read(self, number: int) -> None:
        """The supervisor takes the next report or answer."""
        shard = self.shards[number]
        if shard.outgoing:
            shard.outgoing.popleft()()

    def restart(self) -> None:
        """The supervisor and all shards are killed, and started again."""
        for number in range(len(self.shards)):
            self.crash(number)
        table: SharedTable[str] = SharedTable(len(self.shards))
        table.restore(self.table.entries, self.table.behind_names())
        self.table = table
        for number in range(len(self.shards)):
            self.start(number)

    def settle(self) -> None:
        """Nobody changes anything any more, and all that is under way arrives."""
        for _ in range(200):
            for number in range(len(self.shards)):
                self.start(number)
                self.read(number)
                self.run(number)
                self.send(number)

    def _reported(self, number: int) -> None:
        self.shards[number].has_reported = True
        self.table.end(number)

    def _answered(self, number: int, request: Difference[str]) -> None:
        self.shards[number].unanswered -= 1
        self.table.applied(number, request.name, request.wanted)

    def _set(self, number: int, name: str, entry: str | None) -> None:
        entries = self.shards[number].entries
        if entries.get(name) == entry:
            return
        if entry is None:
            del entries[name]
        else:
            entries[name] = entry
        self._report(number, name)

    def _report(self, number: int, name: str) -> None:
        entry = self.shards[number].entries.get(name)
        self.shards[number].outgoing.append(lambda: self.table.report(number, name, entry))


_STEPS = ("change", "delete", "send", "run", "read", "crash", "start", "restart")
_WEIGHTS = (6, 2, 8, 10, 12, 1, 3, 0.3)


@settings(max_examples=examples(200))
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 60))
def test_shards_agree_once_changes_end(seed: int, shards: int, steps: int) -> None:
    draw = random.Random(seed)
    host = _Host(shards)
    created: set[str] = set()
    for step in draw.choices(_STEPS, _WEIGHTS, k=steps):
        number, name = draw.randrange(shards), draw.choice("AB")
        if step == "change":
            if host.shards[number].is_up:
                created.add(name)
            host.change(number, name, draw.choice("xyz"))
        elif step == "delete":
            host.change(number, name, None)
        elif step == "restart":
            host.restart()
        else:
            getattr(host, step)(number)
    host.settle()

    for shard in host.shards:
        assert shard.entries == host.table.entries
        assert not shard.outgoing
    assert not any(map(host.table.behind_count, range(shards)))
    # Only an administrator deletes.
    assert host.table.entries.keys() >= created - host.ever_deleted


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_last_of_two_changes_on_two_shards_counts(order: tuple[int, int]) -> None:
    host = _Host(2)
    host.settle()
    for number in order:
        host.change(number, "T", f"of {number}")
        host.settle()

    assert [shard.entries for shard in host.shards] == [{"T": f"of {order[1]}"}] * 2
