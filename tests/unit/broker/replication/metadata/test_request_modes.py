"""Request modes follow the master."""

from __future__ import annotations

import pytest

from rmq_broker.pop.request_modes import RequestModes
from rmq_broker.replication.metadata.master import Master, MetadataError
from rmq_broker.replication.metadata.request_modes import RequestModePart
from rmq_remoting.bodies.assignment import MessageRequestMode
from rmq_remoting.codes import RequestCode
from tests.support.broker_settings import broker_settings
from tests.support.fake_master import ADDRESS, FakeMaster

_POP = (
    b'{"messageRequestModeMap":{"T":{"CG":'
    b'{"consumerGroup":"CG","mode":"POP","popShareQueueNum":3,"topic":"T"}}}}'
)


async def test_modes_are_taken_over_and_dropped() -> None:
    modes, client, written = RequestModes(broker_settings()), FakeMaster(), []
    part = RequestModePart(modes, lambda: written.append(modes.encode()))
    for answer in (_POP, _POP, b'{"messageRequestModeMap":{}}'):
        client.answers[RequestCode.GET_ALL_MESSAGE_REQUEST_MODE] = answer
        await part.sync(Master(client, ADDRESS))
        found = modes.get("T", "CG").mode
        assert found is (MessageRequestMode.POP if answer == _POP else MessageRequestMode.PULL)
    assert written == [_POP, b'{"messageRequestModeMap":{}}']


async def test_an_answer_without_modes_changes_nothing() -> None:
    modes, client = RequestModes(broker_settings()), FakeMaster()
    modes.decode(_POP)
    client.answers[RequestCode.GET_ALL_MESSAGE_REQUEST_MODE] = b"{}"
    with pytest.raises(MetadataError, match="messageRequestModeMap"):
        await RequestModePart(modes, lambda: None).sync(Master(client, ADDRESS))
    assert modes.encode() == _POP
