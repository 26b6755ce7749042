"""The timer's checkpoint `timercheck`, as both brokers write it."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from rmq_broker.timers.checkpoint import TimerCheckpoint

_OURS = TimerCheckpoint(
    read_ms=5000,
    log_end=520,
    queue_offset=17,
    timestamp_ms=1,
    counter=4,
    precision_ms=1000,
    handed_over_ms=3000,
    apaches_read_ms=4000,
    delivered_ms=2000,
    delivered_offset=11,
)


def test_a_checkpoint_is_read_back(tmp_path: Path) -> None:
    _OURS.save(tmp_path / "timercheck")
    assert TimerCheckpoint.load(tmp_path / "timercheck") == _OURS


def test_apaches_broker_finds_its_values(tmp_path: Path) -> None:
    _OURS.save(tmp_path / "timercheck")
    content = (tmp_path / "timercheck").read_bytes()
    assert len(content) == 4096
    assert content[:56] == pack(">qqqqqqq", 4000, 520, 17, 17, 0, 1, 4) == _OURS.values()


def test_the_answer_to_replicas_has_all_values() -> None:
    encoded = _OURS.encode()
    assert encoded.startswith(_OURS.values())
    assert TimerCheckpoint.decode(encoded) == _OURS
    apaches = TimerCheckpoint.decode(_OURS.values())  # as Apache's broker answers
    assert (apaches.read_ms, apaches.queue_offset, apaches.handed_over_ms) == (4000, 17, 4000)


def test_values_written_by_apaches_broker_take_precedence(tmp_path: Path) -> None:
    path = tmp_path / "timercheck"
    _OURS.save(path)
    content = bytearray(path.read_bytes())
    content[:56] = pack(">qqqqqqq", 9000, 1040, 30, 30, 0, 2, 5)
    path.write_bytes(content)
    found = TimerCheckpoint.load(path)
    assert (found.read_ms, found.log_end, found.queue_offset) == (9000, 1040, 30)
    assert (found.handed_over_ms, found.precision_ms) == (9000, 0)
    assert (found.delivered_ms, found.delivered_offset) == (0, 0)


def test_without_a_file_all_values_are_zero(tmp_path: Path) -> None:
    assert TimerCheckpoint.load(tmp_path / "timercheck") == TimerCheckpoint()


@pytest.mark.parametrize("content", [b"", b"\0" * 20, pack(">qqqq", -1, 0, 0, 0)])
def test_a_damaged_file_has_only_zeros(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "timercheck").write_bytes(content)
    assert TimerCheckpoint.load(tmp_path / "timercheck") == TimerCheckpoint()


def test_a_file_of_an_old_broker_has_no_state_version(tmp_path: Path) -> None:
    (tmp_path / "timercheck").write_bytes(pack(">qqqq", 9000, 52, 3, 3))
    found = TimerCheckpoint.load(tmp_path / "timercheck")
    assert (found.read_ms, found.log_end, found.queue_offset, found.counter) == (9000, 52, 3, 0)
