"""A broker whose own JSON files are damaged: it starts from their backups, or not at all and says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.daemon.lifecycle import StartError
from tests.support.broker_requests import create_topic, heartbeat, request, send, sent
from tests.support.brokers import RunningBroker, broker_configuration

_FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")
_KEYS = {"autoCreateTopicEnable": "false"}
_DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-30]),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


async def _written(home: Path) -> Path:
    """A broker has had a topic, a group and an offset; its files with equal backups."""
    broker = RunningBroker(broker_configuration(home, **_KEYS))
    await broker.start()
    async with broker.client() as client, broker.client() as consumer:
        await client.ask(create_topic("Kept", 4))
        sent(await client.ask(send("Kept")))
        await consumer.ask(heartbeat("client", "CG", {"Kept": "*"}))
        fields = {"consumerGroup": "CG", "topic": "Kept", "queueId": 0, "commitOffset": 1}
        answer = await client.ask(request(RequestCode.UPDATE_CONSUMER_OFFSET, **fields))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    await broker.stop()
    folder = home / "store" / "config"
    for name in _FILES:
        (folder / f"{name}.bak").write_bytes((folder / name).read_bytes())
    return folder


@pytest.mark.parametrize("name", _FILES)
@pytest.mark.parametrize("damage", _DAMAGES)
async def test_it_knows_what_it_knew_from_the_backup(tmp_path: Path, name: str, damage: str) -> None:
    folder = await _written(tmp_path)
    _DAMAGES[damage](folder / name)
    broker = RunningBroker(broker_configuration(tmp_path, **_KEYS))
    await broker.start()
    async with broker.client() as client:
        assert sent(await client.ask(send("Kept", queue_id=3))).queue_id == 3
        fields = {"consumerGroup": "CG", "topic": "Kept", "queueId": 0}
        answer = await client.ask(request(RequestCode.QUERY_CONSUMER_OFFSET, **fields))
        assert (answer.code, answer.ext_fields["offset"]) == (ResponseCode.SUCCESS, "1")
        assert broker.groups.get("CG") is not None
    await broker.stop()


@pytest.mark.parametrize("name", _FILES)
async def test_it_does_not_start_without_what_it_knew(tmp_path: Path, name: str) -> None:
    """Neither file says it: the error names both, and nothing is written over them."""
    folder = await _written(tmp_path)
    for path in (folder / name, folder / f"{name}.bak"):
        _DAMAGES["torn"](path)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    broker = RunningBroker(broker_configuration(tmp_path, **_KEYS))
    with pytest.raises(
        StartError, match=rf"{name} is damaged.*{name}\.bak is damaged.*Restore one of the two"
    ):
        await broker.start()
    await broker.stop()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
