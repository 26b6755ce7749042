"""The topic service: its file, and settings that change."""

from __future__ import annotations

from pathlib import Path

from rmq_broker.topics.service import TopicService
from rmq_remoting.bodies.topic import TopicConfig
from rmq_remoting.daemon.configuration import Change
from tests.support.broker_settings import broker_settings
from tests.support.clock import Clock


def _service(folder: Path) -> TopicService:
    return TopicService(broker_settings(storePathRootDir=folder), Clock())


def _change(key: str) -> Change:
    return Change({key: ("before", "after")}, {})


async def test_changes_are_written_from_the_start_on(tmp_path: Path) -> None:
    service = _service(tmp_path)
    service.load()
    service.start()
    service.table.update(TopicConfig(topic_name="T"))
    await service.file.close()

    again = _service(tmp_path)
    again.load()
    assert "T" in again.table


async def test_loading_writes_nothing(tmp_path: Path) -> None:
    service = _service(tmp_path)
    service.load()
    service.table.update(TopicConfig(topic_name="T"))
    await service.file.close()
    assert not service.file.path.exists()


async def test_auto_creation_switched_on_creates_the_model_topic(tmp_path: Path) -> None:
    settings = broker_settings(storePathRootDir=tmp_path, autoCreateTopicEnable=False)
    service = TopicService(settings, Clock())
    service.start()
    assert "TBW102" not in service.table
    settings.auto_create_topic_enable = True
    service.settings_changed(_change("autoCreateTopicEnable"))
    assert "TBW102" in service.table
    await service.file.close()


async def test_a_changed_permission_is_announced(tmp_path: Path) -> None:
    service = _service(tmp_path)
    service.start()
    before = service.table.data_version
    service.settings_changed(_change("listenPort"))
    assert service.table.data_version == before
    service.settings_changed(_change("brokerPermission"))
    assert service.table.data_version != before
    await service.file.close()
