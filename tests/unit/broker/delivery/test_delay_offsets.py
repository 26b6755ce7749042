"""Offsets of delayed messages: the file's format, and when an offset may be written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmq_broker.delivery.delay_offsets import DelayOffsetKeeper, DelayOffsets
from rmq_remoting.daemon.config_file import ConfigFile
from rmq_remoting.errors import BodyError
from tests.support.clock import START_MS, Clock
from tests.unit.broker.delivery.parts import DeliveryBroker, inner


def _written(offsets: DelayOffsets) -> dict[str, int]:
    table = json.loads(offsets.encode().replace(b"{1:", b'{"1":').replace(b",3:", b',"3":'))["offsetTable"]
    assert isinstance(table, dict)
    return table


async def test_the_file_is_encoded_as_by_apache() -> None:
    offsets = DelayOffsets(Clock())
    version = b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":%d},"offsetTable":' % START_MS
    assert offsets.encode() == version + b"{}}"
    offsets.advance(3, 17)
    offsets.advance(1, 5)
    offsets.all_is_flushed()
    assert offsets.encode() == version + b"{1:5,3:17}}"


async def test_the_file_is_decoded() -> None:
    offsets = DelayOffsets(Clock())
    offsets.decode(
        b'{"dataVersion":{"counter":4,"stateVersion":0,"timestamp":77},"offsetTable":{1:5,"18":17}}'
    )
    assert (offsets.get(1), offsets.get(18), offsets.get(2)) == (5, 17, 0)
    assert b'"counter":4' in offsets.encode()
    assert b"{1:5,18:17}" in offsets.encode()
    # Old brokers did not write a version.
    offsets.decode(b'{"offsetTable":{}}')
    assert offsets.current() == {}
    with pytest.raises(BodyError):
        offsets.decode(b'{"offsetTable":{1:"x"}}')


async def test_the_version_grows_with_every_200_deliveries() -> None:
    clock = Clock()
    offsets = DelayOffsets(clock)
    clock.pass_seconds(1)
    for number in range(399):
        offsets.advance(1, number)
    assert b'"counter":1,' in offsets.encode()
    assert b'"timestamp":%d' % (START_MS + 1000) in offsets.encode()


async def test_only_offsets_of_flushed_messages_are_written() -> None:
    offsets = DelayOffsets(Clock())
    offsets.advance(1, 10)
    offsets.log_is(end=1000, flushed=500)
    offsets.advance(1, 20)
    offsets.log_is(end=2000, flushed=999)
    assert (_written(offsets), offsets.take_news()) == ({}, False)

    offsets.log_is(end=2000, flushed=1000)
    assert (_written(offsets), offsets.take_news(), offsets.take_news()) == ({"1": 10}, True, False)

    offsets.advance(1, 30)
    offsets.log_is(end=3000, flushed=2000)
    assert (_written(offsets), offsets.take_news()) == ({"1": 20}, True)
    assert offsets.current() == {1: 30}


async def test_unchanged_offsets_are_not_written() -> None:
    offsets = DelayOffsets(Clock())
    for _ in range(3):
        offsets.log_is(end=1000, flushed=1000)
    offsets.all_is_flushed()
    assert not offsets.take_news()


@pytest.mark.parametrize("all_is_flushed", [True, False])
async def test_close_writes_the_last_offsets_of_a_flushed_log(tmp_path: Path, all_is_flushed: bool) -> None:
    delivery = DeliveryBroker(tmp_path)
    path = tmp_path / "config" / "delayOffset.json"
    path.parent.mkdir()
    file = ConfigFile(path, delivery.delay_offsets)
    keeper = DelayOffsetKeeper(delivery.delay_offsets, delivery.store, file, delivery.settings)
    assert keeper.period_seconds() == 10.0
    delivery.writer.put(inner(), 1)
    await delivery.pass_seconds(1)
    keeper.look()
    keeper.write()

    await keeper.close(all_is_flushed=all_is_flushed)

    assert path.exists() == all_is_flushed
    if all_is_flushed:
        assert b"{1:1}" in path.read_bytes()
    delivery.store.close()
