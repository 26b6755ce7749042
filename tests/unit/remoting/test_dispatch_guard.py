"""The guard of a dispatcher: it admits or refuses each request before everything else."""

from __future__ import annotations

import asyncio

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.dispatch import Dispatcher
from rmq_remoting.errors import CommandError, HeaderDecodeError
from rmq_remoting.tiers import InlineTier
from tests.support.peers import Peer

_CODE = RequestCode.GET_BROKER_CONFIG


def _guard(connection: Connection, request: RemotingCommand) -> None:
    """Refuse requests that say so; the field `damaged` stands for a header that cannot be decoded."""
    if "denied" in request.ext_fields:
        raise CommandError(ResponseCode.NO_PERMISSION, "you may not")
    if "broken" in request.ext_fields:
        raise RuntimeError("the guard has a fault")
    if "damaged" in request.ext_fields:
        raise HeaderDecodeError("damaged")


class _Served:
    """A dispatcher with one processor, and the requests that it has run."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.dispatcher = Dispatcher(guard=_guard)
        tier = InlineTier("inline", capacity=10, max_wait_ms=5000)
        self.dispatcher.register([_CODE], self._run, tier)
        self.peer = Peer(self.dispatcher)

    def _run(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        self.ran.append(request.opaque)
        return request.response(0)

    def dispatch(self, *requests: RemotingCommand) -> None:
        now = asyncio.get_running_loop().time()
        self.dispatcher.dispatch_all(self.peer.connection, list(requests), now, now)


def _request(*marks: str, oneway: bool = False, code: int = _CODE) -> RemotingCommand:
    return RemotingCommand.request(code, dict.fromkeys(marks, "1"), oneway=oneway)


async def test_refused_requests_do_not_run() -> None:
    served = _Served()
    first, denied, last = _request(), _request("denied"), _request()
    served.dispatch(first, denied, last)
    await asyncio.sleep(0)
    assert served.ran == [first.opaque, last.opaque]
    answer = served.peer.answers[denied.opaque]
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "you may not")
    assert served.peer.answers[last.opaque].code == 0
    assert served.dispatcher.guard_refusals == 1


async def test_a_guard_with_a_fault_admits_nothing(caplog: pytest.LogCaptureFixture) -> None:
    served = _Served()
    broken = _request("broken")
    served.dispatch(broken)
    await asyncio.sleep(0)
    assert served.ran == []
    answer = served.peer.answers[broken.opaque]
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "check of access failed" in caplog.text


async def test_one_way_and_unknown_requests_are_guarded_too() -> None:
    served = _Served()
    unknown = _request("denied", code=9_999)
    served.dispatch(_request("denied", oneway=True), unknown)
    await asyncio.sleep(0)
    assert served.peer.answers[unknown.opaque].code == ResponseCode.NO_PERMISSION
    assert len(served.peer.received) == 1
    assert (served.ran, served.dispatcher.guard_refusals) == ([], 2)


async def test_requests_before_a_damaged_one_run() -> None:
    served = _Served()
    first = _request()
    with pytest.raises(HeaderDecodeError):
        served.dispatch(first, _request("damaged"), _request())
    assert served.ran == [first.opaque]
