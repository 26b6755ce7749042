"""Each check finds the fault that is planted, and accepts a history without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import checks
from tests.cluster.history import Committed, Delivery, FaultRecord, History, Send, Term, line_of
from tests.cluster.recovery_times import report, seconds_to_first_accepted
from tests.support.stores import fill, log_file, opened, overwrite

_A, _B = "10.77.0.2:10911", "10.77.0.3:10911"


def _send(number: int, broker: str = _A, status: str = "SEND_OK", at: float | None = None) -> Send:
    began = float(number) if at is None else at
    return Send(f"m{number}", began, began + 0.5, status, "T", 0, number, broker)


def _delivery(number: int, group: str = "G") -> Delivery:
    return Delivery(group, f"m{number}", "T", 0, number, float(number))


def _sample(offset: int, at: float, broker: str = _A) -> Committed:
    return Committed(broker, "G", "T", 0, offset, at)


_LOG_FILE_BYTES, _MESSAGES = 16_384, 120
_FLAG_AT = 19  # the last byte of a record's flag, which applications set

_SENDS = [_send(0), _send(1), _send(2, _B)]
_LOG = {(("T", 0), number): f"m{number}" for number in range(3)}
_DELIVERIES = [_delivery(number) for number in range(3)]
_TERMS = [Term(_A, 0.0, 1.6), Term(_B, 1.8)]


# --- messages ---


def test_a_lost_message_is_found() -> None:
    checks.nothing_acknowledged_is_lost(_SENDS, _LOG)
    with pytest.raises(AssertionError, match="1 acknowledged messages are lost\n  T/0@1: 'm1'"):
        checks.nothing_acknowledged_is_lost(_SENDS, {k: v for k, v in _LOG.items() if v != "m1"})


def test_an_acknowledged_message_that_another_one_has_replaced_is_found() -> None:
    with pytest.raises(AssertionError, match="there is 'other'"):
        checks.nothing_acknowledged_is_lost(_SENDS, _LOG | {(("T", 0), 1): "other"})


def test_only_acknowledged_messages_may_not_be_lost() -> None:
    undecided = [_send(3, status="FLUSH_SLAVE_TIMEOUT"), Send("m4", 4.0, 7.0, "TimedOut")]
    checks.nothing_acknowledged_is_lost([*_SENDS, *undecided], _LOG)


def test_a_message_that_is_stored_twice_or_was_never_sent_is_found() -> None:
    checks.nothing_is_stored_twice(_SENDS, _LOG)
    with pytest.raises(AssertionError, match="1 messages are stored twice"):
        checks.nothing_is_stored_twice(_SENDS, _LOG | {(("T", 0), 3): "m1"})
    with pytest.raises(AssertionError, match="1 stored messages were never sent\n  'strange'"):
        checks.nothing_is_stored_twice(_SENDS, _LOG | {(("T", 0), 3): "strange"})


# --- split brain ---


def test_an_offset_that_two_masters_gave_is_found() -> None:
    checks.no_place_was_given_twice(_SENDS)
    with pytest.raises(AssertionError, match=rf"given twice: 'm1' by {_A}, 'other' by {_B}"):
        checks.no_place_was_given_twice([*_SENDS, replace(_send(1, _B), body="other")])


def test_two_masters_at_the_same_time_are_found() -> None:
    checks.only_the_master_accepted(_SENDS, _TERMS)
    with pytest.raises(AssertionError, match="two masters at the same time"):
        checks.only_the_master_accepted([], [Term(_A, 0.0, 2.0), Term(_B, 1.8)])
    with pytest.raises(AssertionError, match="two masters at the same time"):
        checks.only_the_master_accepted([], [Term(_A, 0.0), Term(_B, 1.8)])


def test_terms_that_are_not_exact_may_overlap() -> None:
    terms = [Term(_A, 0.0, 2.0), Term(_B, 1.8)]
    checks.only_the_master_accepted(_SENDS, terms, are_exact=False)
    with pytest.raises(AssertionError, match="was not the master then"):
        checks.only_the_master_accepted([_send(3, _A, at=2.1)], terms, are_exact=False)


def test_a_term_that_a_controller_ended_lasts_until_the_next_master_accepts() -> None:
    sends = [_send(2, _A, at=2.1), _send(3, _B, at=2.2), _send(4, _B, at=4.0)]
    terms = checks.until_the_next_accepted([Term(_A, 0.0, 2.0), Term(_B, 1.8)], sends)
    assert terms == [Term(_A, 0.0, 2.7), Term(_B, 1.8)]
    checks.only_the_master_accepted(sends, terms, are_exact=False)
    with pytest.raises(AssertionError, match="was not the master then"):
        checks.only_the_master_accepted([_send(5, _A, at=2.8)], terms, are_exact=False)


def test_a_former_master_that_accepted_a_message_is_found() -> None:
    """Both brokers acknowledged in the same time."""
    both = [_send(1, _A, at=2.0), _send(2, _B, at=2.1)]
    with pytest.raises(AssertionError, match=rf"{_A} accepted 'm1' at 2.000 to 2.500"):
        checks.only_the_master_accepted(both, _TERMS)


# --- deliveries ---


def test_a_delivery_of_a_message_that_is_not_in_the_log_is_found() -> None:
    checks.deliveries_are_in_the_log(_DELIVERIES, _LOG)
    with pytest.raises(AssertionError, match="1 delivered messages are not in the log\n  G T/0@7: 'm7'"):
        checks.deliveries_are_in_the_log([*_DELIVERIES, _delivery(7)], _LOG)


def test_a_delivered_message_that_a_failover_took_back_is_found() -> None:
    """The new master gave its offset to another message."""
    with pytest.raises(AssertionError, match="G T/0@2: 'm2'"):
        checks.deliveries_are_in_the_log(_DELIVERIES, _LOG | {(("T", 0), 2): "of the new master"})


def test_a_redelivery_may_have_another_place_but_not_another_message() -> None:
    again = replace(_delivery(1), topic="%RETRY%G", offset=0, is_first=False)
    checks.deliveries_are_in_the_log([again], _LOG)
    with pytest.raises(AssertionError, match="1 delivered messages"):
        checks.deliveries_are_in_the_log([replace(again, body="m9")], _LOG)


def test_a_message_that_a_group_was_not_given_is_found() -> None:
    checks.everything_is_delivered(_SENDS, _DELIVERIES, ["G"])
    with pytest.raises(AssertionError, match="group G was not given 1 of 3 acknowledged messages\n  T/0@1"):
        checks.everything_is_delivered(_SENDS, [_delivery(0), _delivery(2)], ["G"])
    with pytest.raises(AssertionError, match="group H was not given 3 of 3"):
        checks.everything_is_delivered(_SENDS, _DELIVERIES, ["G", "H"])


# --- committed offsets ---


def test_an_offset_that_went_back_is_found() -> None:
    checks.offsets_never_go_back([_sample(1, 0.1), _sample(1, 0.2), _sample(4, 0.3)], _TERMS)
    with pytest.raises(AssertionError, match=r"an offset went back: .*offset=4.*, then .*offset=3"):
        checks.offsets_never_go_back([_sample(4, 0.1), _sample(3, 0.2)], _TERMS)


def test_a_new_master_may_have_a_slightly_older_offset() -> None:
    later = [_sample(9, 1.0), _sample(7, 2.0, _B), _sample(9, 3.0, _B)]
    checks.offsets_never_go_back(later, _TERMS)


def test_an_old_offset_that_a_new_master_lacks_is_found() -> None:
    lost = [_sample(9, 1.0), _sample(0, 90.0, _B)]
    with pytest.raises(AssertionError, match="an offset of more than 60 s ago is lost"):
        checks.offsets_never_go_back(lost, _TERMS)


# --- logs ---


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, Path]:
    """Two brokers with the same log of two files."""
    found = {}
    for name in ("a", "b"):
        store = opened(tmp_path / name, log_file_bytes=_LOG_FILE_BYTES)
        fill(store, _MESSAGES)
        store.close()
        found[name] = tmp_path / name
    return found


def test_a_log_that_differs_in_one_byte_is_found(stores: dict[str, Path]) -> None:
    end = checks.logs_are_the_same(stores)
    assert end > _LOG_FILE_BYTES
    path = log_file(stores["b"], 1)
    # A part of a message that no checksum covers.
    overwrite(path, _FLAG_AT, b"\x01")
    with pytest.raises(
        AssertionError, match=f"the logs of a and b differ at offset {_LOG_FILE_BYTES + _FLAG_AT}"
    ):
        checks.logs_are_the_same(stores)


def test_a_log_that_ends_before_the_other_is_found(tmp_path: Path, stores: dict[str, Path]) -> None:
    log_file(stores["b"], 1).write_bytes(bytes(_LOG_FILE_BYTES))
    with pytest.raises(AssertionError, match="the logs end at different offsets"):
        checks.logs_are_the_same(stores)


def test_the_log_is_read_by_place(stores: dict[str, Path]) -> None:
    (topic,) = {path.name for path in (stores["a"] / "consumequeue").iterdir()}
    assert len(checks.read_log(stores["a"], [topic])) == _MESSAGES
    assert checks.read_log(stores["a"], ["another"]) == {}


# --- times, and the file of a load ---


def test_the_time_to_the_first_accepted_send_counts_sends_that_began_after_the_fault() -> None:
    sends = [_send(0, at=0.0), replace(_send(1, at=1.9), answered_at=2.2), _send(2, at=3.0), _send(3, at=4.0)]
    faults = [FaultRecord("kill", 2.0), FaultRecord("kill", 3.9), FaultRecord("cut", 5.0)]
    seconds = seconds_to_first_accepted(faults, sends)
    assert seconds == {"kill": [1.5, pytest.approx(0.6)], "cut": [float("inf")]}
    assert "kill" in report(seconds)


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text(line_of(_SENDS[0]) + line_of(_DELIVERIES[0]) + '["Send", "cut o')
    history = History()
    history.read_load(path)
    assert (history.sends, history.deliveries) == (_SENDS[:1], _DELIVERIES[:1])
