"""The offset table: commits, resets, persistence in Apache's format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_broker.offsets.flusher import OffsetFlusher, encoded_ahead
from rmq_broker.offsets.table import NO_OFFSET, ConsumerOffsetTable, key_of
from rmq_remoting.bodies import fastjson
from rmq_remoting.bodies.offsets import ConsumerOffsetSerializeWrapper
from rmq_remoting.daemon.config_file import ConfigFile
from rmq_remoting.errors import BodyError
from tests.support.broker_settings import broker_settings
from tests.support.clock import Clock
from tests.support.golden import DATA

_APACHES_FILE = DATA / "protocol" / "config" / "consumerOffset.json"


def _table() -> ConsumerOffsetTable:
    return ConsumerOffsetTable(Clock())


def _offsets(content: bytes) -> dict[str, dict[int, int]]:
    return ConsumerOffsetSerializeWrapper.decode(content).offset_table


def test_committed_offsets_are_found() -> None:
    table = _table()
    assert table.query("CG", "T", 0) == NO_OFFSET
    table.commit("CG", "T", 0, 7)
    table.commit("CG", "T", 1, 0)
    assert [table.query("CG", "T", queue_id) for queue_id in range(3)] == [7, 0, NO_OFFSET]
    assert table.query("T", "CG", 0) == NO_OFFSET
    assert table.offsets_of("CG", "T") == {0: 7, 1: 0}
    table.commit("CG", "T", 0, 5)
    assert (table.query("CG", "T", 0), table.backward_commits) == (5, 1)


def test_topics_of_groups_and_groups_of_topics() -> None:
    table = _table()
    for group, topic in (("A", "T"), ("B", "T"), ("A", "%RETRY%A")):
        table.commit(group, topic, 0, 1)
    assert table.groups_of("T") == {"A", "B"}
    assert table.topics_of("A") == {"T", "%RETRY%A"}
    assert len(table) == 3


def test_reset_is_pending_until_it_is_taken() -> None:
    table = _table()
    table.commit("CG", "T", 0, 90)
    table.assign_reset("CG", "T", 0, 10)
    assert table.has_reset("CG", "T", 0) and not table.has_reset("CG", "T", 1)
    table.commit("CG", "T", 0, 95)
    assert table.query("CG", "T", 0) == 10
    assert table.take_reset("CG", "T", 0) == 10
    assert table.take_reset("CG", "T", 0) == NO_OFFSET
    assert not table.has_reset("CG", "T", 0)


def test_reset_is_not_a_backward_commit() -> None:
    table = _table()
    table.commit("CG", "T", 0, 90)
    table.note_pulled(key_of("CG", "T"), 0, 99)
    table.assign_reset("CG", "T", 0, 10)
    assert table.backward_commits == 0
    assert table.offsets_of("CG", "T") == {0: 10}
    assert table.pulled("CG", "T", 0) == NO_OFFSET


def test_pending_reset_is_persisted() -> None:
    table, again = _table(), _table()
    table.commit("CG", "T", 1, 7)
    table.assign_reset("CG", "T", 0, 10)
    again.decode(table.encode())
    assert again.has_reset("CG", "T", 0) and not again.has_reset("CG", "T", 1)
    assert ConsumerOffsetSerializeWrapper.decode(table.encode()).offset_table == {"T@CG": {0: 10, 1: 7}}
    revision = again.revision
    assert (again.take_reset("CG", "T", 1), again.revision) == (NO_OFFSET, revision)
    assert again.take_reset("CG", "T", 0) == 10
    assert again.revision > revision, "the file has to be written again"
    assert b"resetMarks" not in again.encode()


def test_pulled_offsets_are_separate_from_committed_ones() -> None:
    table = _table()
    table.note_pulled(key_of("CG", "T"), 1, 32)
    assert [table.pulled("CG", "T", queue_id) for queue_id in (0, 1)] == [NO_OFFSET, 32]
    assert table.pulled("CG", "U", 1) == NO_OFFSET
    assert table.query("CG", "T", 1) == NO_OFFSET and len(table) == 0
    table.remove_group("CG")
    assert table.pulled("CG", "T", 1) == NO_OFFSET


def test_warnings_about_backward_commits_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    table = ConsumerOffsetTable(clock)
    for offset in (9, 8, 7, 6):
        table.commit("CG", "T", 0, offset)
    clock.pass_seconds(1)
    table.commit("CG", "T", 0, 5)
    first, second = [record.getMessage() for record in caplog.records]
    assert "peer=unknown key=T@CG queue=0 offset=8 before=9 unlogged=0" in first
    assert "peer=unknown key=T@CG queue=0 offset=5 before=6 unlogged=2" in second
    assert table.backward_commits == 4


def test_warnings_about_backward_commits_go_on_after_a_step_back_of_the_clock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    table = ConsumerOffsetTable(clock)
    for offset in (9, 8, 7):
        table.commit("CG", "T", 0, offset)
    clock.set_by(-5 * 3600)
    table.commit("CG", "T", 0, 6)
    assert len(caplog.records) == 2


def test_removal_of_topics_and_groups() -> None:
    table = _table()
    for group, topic in (("A", "T"), ("B", "T"), ("A", "TT"), ("AA", "T2")):
        table.commit(group, topic, 0, 1)
        table.assign_reset(group, topic, 0, 1)
    table.encode()
    assert table.remove_topic("T") == 2
    assert _offsets(table.encode()) == {"TT@A": {0: 1}, "T2@AA": {0: 1}}
    assert table.remove_group("A") == 1
    assert _offsets(table.encode()) == {"T2@AA": {0: 1}}
    assert not table.has_reset("A", "TT", 0) and table.query("B", "T", 0) == NO_OFFSET
    assert table.remove_group("A") == 0


def test_offsets_are_copied_between_groups() -> None:
    table = _table()
    table.commit("A", "T", 0, 5)
    table.copy_group("A", "B", "T")
    table.commit("A", "T", 0, 6)
    assert table.query("B", "T", 0) == 5
    assert _offsets(table.encode())["T@B"] == {0: 5}


def test_data_version_grows_at_intervals() -> None:
    table = _table()
    for offset in range(1000):
        table.commit("CG", "T", 0, offset)
    assert table.data_version.counter == 2


def test_apaches_file_round_trip() -> None:
    content = _APACHES_FILE.read_bytes()
    before = fastjson.loads(content)
    assert isinstance(before, dict)
    table = _table()
    table.decode(content)
    written = fastjson.loads(table.encode())
    # groupTopicMap comes from a getter of Apache's class, derived from the same offsets; it is never read.
    assert written == {name: before[name] for name in ("dataVersion", "offsetTable")}
    assert table.query("CG_single", "TopicSingle", 0) == 123


def test_damaged_file_changes_nothing() -> None:
    table = _table()
    table.commit("CG", "T", 0, 1)
    before = table.encode()
    for content in (b"{", b'{"offsetTable":{"T@CG":{0:"x"}}}', b"null"):
        with pytest.raises(BodyError):
            table.decode(content)
    assert table.encode() == before


_names = st.sampled_from(["A", "B", "%RETRY%A", 'a"b\\', "主题"])


@given(st.lists(st.tuples(_names, _names, st.integers(0, 3), st.integers(0, 2**62), st.booleans())))
def test_snapshot_includes_commits_since_the_last_one(
    commits: list[tuple[str, str, int, int, bool]],
) -> None:
    table = _table()
    expected: dict[str, dict[int, int]] = {}
    for group, topic, queue_id, offset, encode_now in commits:
        table.commit(group, topic, queue_id, offset)
        expected.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        if encode_now:
            table.encode()
    assert _offsets(table.encode()) == expected


async def test_only_changed_offsets_are_written(tmp_path: Path) -> None:
    table = _table()
    file = ConfigFile(tmp_path / "consumerOffset.json", table)
    flusher = OffsetFlusher(table, file, broker_settings(flushConsumerOffsetInterval="2500"))
    assert flusher.period_seconds() == 2.5
    flusher.flush()
    await file.save()
    assert file.writes == 0
    table.commit("CG", "T", 0, 1)
    # A request for all offsets arrives between the commit and the flush.
    table.encode()
    flusher.flush()
    await file.save()
    flusher.flush()
    await file.save()
    assert file.writes == 1
    table.commit("CG", "T", 0, 2)
    await flusher.save()
    assert file.writes == 2
    table.commit("CG", "T", 0, 2)
    await flusher.close()
    assert json.loads(file.path.read_bytes().replace(b"{0:", b'{"0":'))["offsetTable"] == {"T@CG": {"0": 2}}


def test_standard_json_is_accepted() -> None:
    table = _table()
    table.decode(json.dumps({"offsetTable": {"T@CG": {"0": 4}}}).encode())
    assert table.query("CG", "T", 0) == 4


def test_the_file_can_be_prepared_in_steps() -> None:
    table = _table()
    for number in range(3000):
        table.commit("CG", f"T{number}", 0, number)
    steps = encoded_ahead(table)
    next(steps)
    table.commit("CG", "T0", 0, 7000)
    table.remove_topic("T2999")
    assert list(steps)
    assert set(table.changed_keys()) <= {"T0@CG"}
    written = _offsets(table.encode())
    assert len(written) == 2999 and written["T0@CG"] == {0: 7000}
