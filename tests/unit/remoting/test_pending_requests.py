"""Pending requests: matching of responses, time-outs and bounds, with events and a clock."""

from __future__ import annotations

import pytest

from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import ConnectionClosed, RequestTimeout, TooManyRequests
from rmq_remoting.pending_requests import PendingRequests
from tests.support.replies import RecordingReply


def request(opaque: int) -> RemotingCommand:
    return RemotingCommand(10, 0, opaque)


def response(opaque: int, code: int = 0) -> RemotingCommand:
    return request(opaque).response(code)


def pending_to_peer(max_requests: int = 10) -> PendingRequests:
    pending = PendingRequests(max_requests)
    pending.peer = "192.0.2.1:10911"
    return pending


def added(
    pending: PendingRequests, opaque: int, timeout_seconds: float = 3.0, now: float = 0.0
) -> RecordingReply:
    reply = RecordingReply()
    pending.add(opaque, reply, timeout_seconds, now)
    return reply


def test_responses_complete_their_requests_in_any_order() -> None:
    pending = pending_to_peer()
    replies = [added(pending, number) for number in range(3)]
    assert pending.complete([response(2, 22), response(0, 20)]) == []
    assert [reply.codes for reply in replies] == [[20], [], [22]]
    assert list(pending.by_number) == [1]


def test_requests_of_the_peer_are_returned_in_their_order() -> None:
    pending = pending_to_peer()
    reply = added(pending, 7)
    of_the_peer = [request(7), request(8)]
    assert pending.complete([of_the_peer[0], response(7, 5), of_the_peer[1]]) == of_the_peer
    assert reply.codes == [5], "a request with the number of a pending one is no response to it"


def test_a_response_without_a_pending_request_is_dropped() -> None:
    pending = pending_to_peer()
    reply = added(pending, 1)
    assert pending.complete([response(2), response(1), response(1)]) == []
    assert reply.codes == [0]
    assert len(pending) == 0


def test_requests_time_out_at_their_own_time() -> None:
    pending = pending_to_peer()
    first = added(pending, 1, timeout_seconds=3.0, now=100.0)
    second = added(pending, 2, timeout_seconds=0.25, now=101.0)
    pending.expire(101.2)
    assert (first.outcomes, second.outcomes) == ([], [])
    pending.expire(101.25)
    assert [str(error) for error in second.errors] == ["no response from 192.0.2.1:10911 within 0.25 s"]
    assert [type(error) for error in second.errors] == [RequestTimeout]
    pending.expire(102.999)
    assert not first.done()
    pending.expire(103.0)
    assert [str(error) for error in first.errors] == ["no response from 192.0.2.1:10911 within 3 s"]
    assert len(pending) == 0


def test_expiry_drops_requests_that_nobody_waits_for() -> None:
    pending = pending_to_peer()
    reply = added(pending, 1, timeout_seconds=1000.0)
    reply.is_cancelled = True
    pending.expire(1.0)
    assert len(pending) == 0
    assert reply.outcomes == []


def test_a_response_to_a_cancelled_request_is_dropped() -> None:
    pending = pending_to_peer()
    reply = added(pending, 1)
    reply.is_cancelled = True
    assert pending.complete([response(1)]) == []
    assert reply.outcomes == []
    assert len(pending) == 0


def test_the_end_of_the_connection_fails_all_requests() -> None:
    pending = pending_to_peer()
    replies = [added(pending, number) for number in range(2)]
    cancelled = added(pending, 3)
    cancelled.is_cancelled = True
    pending.fail_all(ConnectionResetError(104, "Connection reset by peer"))
    for reply in replies:
        assert [type(error) for error in reply.errors] == [ConnectionClosed]
        assert str(reply.errors[0]) == (
            "the connection to 192.0.2.1:10911 ended: [Errno 104] Connection reset by peer"
        )
    assert cancelled.outcomes == []
    assert len(pending) == 0


def test_the_end_of_a_connection_needs_no_cause() -> None:
    pending = pending_to_peer()
    reply = added(pending, 1)
    pending.fail_all(None)
    assert [str(error) for error in reply.errors] == ["the connection to 192.0.2.1:10911 ended"]


def test_a_reply_may_send_the_next_request() -> None:
    pending = pending_to_peer()
    following = RecordingReply()

    class Next(RecordingReply):
        def set_result(self, result: RemotingCommand, /) -> None:
            super().set_result(result)
            pending.add(2, following, 3.0, 0.0)

    pending.add(1, Next(), 3.0, 0.0)
    pending.complete([response(1), response(2, 7)])
    assert following.codes == [7]


def test_pending_requests_are_bounded() -> None:
    pending = pending_to_peer(max_requests=2)
    added(pending, 1)
    added(pending, 2)
    with pytest.raises(
        TooManyRequests,
        match=r"^2 requests to 192\.0\.2\.1:10911 wait for a response already, the limit is 2; slow down$",
    ):
        added(pending, 3)
    pending.complete([response(1)])
    added(pending, 3)
    assert list(pending.by_number) == [2, 3]


def test_a_pending_number_is_refused_and_its_request_stays() -> None:
    pending = pending_to_peer()
    reply = added(pending, 1)
    with pytest.raises(ValueError, match=r"^request number 1 to 192\.0\.2\.1:10911 is pending already$"):
        added(pending, 1)
    pending.complete([response(1, 4)])
    assert reply.codes == [4]
