"""The broker itself (codes 25, 26, 28)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.monitoring.runtime_info import RuntimeInfo
from rmq_broker.processors.admin.broker import BrokerAdminProcessor
from rmq_broker.settings.broker import BrokerSettings, known_keys
from rmq_broker.settings.version import SettingsVersion
from rmq_broker.statistics.broker_statistics import BrokerStatistics
from rmq_broker.store.api import DiskSpace
from rmq_broker.store.cleaning.disk_space import DiskUse
from rmq_broker.store.write_health import WriteHealth
from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.bodies.topic import DataVersion
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.daemon import properties
from rmq_remoting.daemon.configuration import load
from rmq_remoting.errors import CommandError
from rmq_remoting.tiers import InlineTier
from tests.support.clock import Clock
from tests.support.peers import Peer
from tests.unit.broker.processors.parts import FakeStore, answer_of

# The keys of AdminBrokerProcessor.prepareRuntimeInfo, except the schedule's offsets (one per delay level in
# use) and remainHowManyDataToCommit (only with a transient pool).
_APACHES_KEYS = """
    EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity ackThreadPoolQueueCapacity
    ackThreadPoolQueueHeadWaitTimeMills ackThreadPoolQueueSize bootTimestamp brokerActive brokerVersion
    brokerVersionDesc commitLogDirCapacity commitLogMaxOffset commitLogMinOffset dispatchBehindBytes
    dispatchMaxBuffer earliestMessageTimeStamp getFoundTps getMessageEntireTimeMax getMissTps getTotalTps
    getTransferredTps litePullThreadPoolQueueCapacity litePullThreadPoolQueueHeadWaitTimeMills
    litePullThreadPoolQueueSize msgGetTotalTodayMorning msgGetTotalTodayNow msgGetTotalYesterdayMorning
    msgPutTotalTodayMorning msgPutTotalTodayNow msgPutTotalYesterdayMorning pageCacheLockTimeMills
    pullThreadPoolQueueCapacity pullThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueSize putLatency99
    putLatency999 putMessageAverageSize putMessageDistributeTime putMessageEntireTimeMax putMessageFailedTimes
    putMessageSizeTotal putMessageTimesTotal putTps queryThreadPoolQueueCapacity
    queryThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize remainHowManyDataToFlush
    remainTransientStoreBufferNumbs runtime sendThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills
    sendThreadPoolQueueSize startAcceptSendRequestTimeStamp timerCongestNum timerDequeueTps timerEnqueueTps
    timerOffsetBehind timerReadBehind commitLogDiskRatio consumeQueueDiskRatio
"""


class _Broker:
    def __init__(self, tmp_path: Path, lines: str = "") -> None:
        self.file = tmp_path / "broker.conf"
        self.file.write_text(f"brokerName=broker-a\nstorePathRootDir={tmp_path}\n{lines}")
        self.configuration = load(BrokerSettings, self.file, (), known_keys)
        self.clock = Clock()
        version = SettingsVersion(self.clock)
        self.configuration.on_change(version.changed)
        self.statistics = BrokerStatistics(set(), self.clock)
        self.tiers = [InlineTier(name, capacity=10, max_wait_ms=200) for name in ("send", "pull")]
        settings = self.configuration.settings
        self.disk = DiskSpace(settings, WriteHealth())
        self.runtime_info = RuntimeInfo(self.statistics, FakeStore(), self.disk, self.tiers, settings)
        self.admin = BrokerAdminProcessor(self.configuration, version, self.runtime_info)
        self.connection = Peer().connection

    async def update(self, text: str) -> RemotingCommand:
        request = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
        return await answer_of(self.admin.update_settings(self.connection, request))

    def shown(self) -> tuple[dict[str, str], DataVersion]:
        request = RemotingCommand.request(RequestCode.GET_BROKER_CONFIG)
        response = self.admin.get_settings(self.connection, request)
        text = properties.parse(response.body.decode())
        return text, DataVersion.decode(response.ext_fields["version"].encode())


async def test_settings_are_changed_at_once_and_in_the_file(tmp_path: Path) -> None:
    broker = _Broker(tmp_path)
    response = await broker.update("autoCreateTopicEnable=false\nmaxMessageSize=1000\n")
    assert response.code == ResponseCode.SUCCESS
    assert broker.configuration.settings.auto_create_topic_enable is False
    assert "maxMessageSize=1000" in broker.file.read_text()
    shown, version = broker.shown()
    assert (shown["autoCreateTopicEnable"], shown["maxMessageSize"], shown["brokerName"]) == (
        "false",
        "1000",
        "broker-a",
    )
    assert version.counter == 1


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        (
            "autoCreateTopicEnabled=false",
            ResponseCode.INVALID_PARAMETER,
            "did you mean autoCreateTopicEnable",
        ),
        ("maxMessageSize=big", ResponseCode.INVALID_PARAMETER, "must be a whole number"),
        ("aclEnable=true", ResponseCode.INVALID_PARAMETER, "is not supported by this version"),
        ("storeType=defaultRocksDB", ResponseCode.INVALID_PARAMETER, "a store in RocksDB is not supported"),
        ("brokerName=other", ResponseCode.INVALID_PARAMETER, "takes effect only at start"),
        ("configBlackList=x", ResponseCode.NO_PERMISSION, "cannot be changed remotely"),
        ("brokerConfigPath=/x", ResponseCode.NO_PERMISSION, "cannot be changed remotely"),
        ("bad=\\u12", ResponseCode.INVALID_PARAMETER, "lines of the form key=value"),
    ],
)
async def test_bad_settings_change_nothing(tmp_path: Path, line: str, code: ResponseCode, told: str) -> None:
    broker = _Broker(tmp_path)
    before = broker.file.read_text()
    with pytest.raises(CommandError, match=told) as refusal:
        await broker.update(f"traceOn=false\n{line}\n")
    assert refusal.value.code == code
    assert broker.configuration.settings.trace_on is True
    assert broker.file.read_text() == before
    assert broker.shown()[1].counter == 0


async def test_unchanged_settings_are_ignored(tmp_path: Path) -> None:
    broker = _Broker(tmp_path)
    await broker.update("traceOn=true\nbrokerName=broker-a\n")
    await broker.update("")
    assert broker.shown()[1].counter == 0


async def test_unwritable_settings_file_is_reported(tmp_path: Path) -> None:
    broker = _Broker(tmp_path)
    broker.file.unlink()
    with pytest.raises(CommandError, match="not persisted yet") as refusal:
        await broker.update("traceOn=false")
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert broker.configuration.settings.trace_on is False


async def test_runtime_info_has_all_of_apaches_keys(tmp_path: Path) -> None:
    broker = _Broker(tmp_path)
    for tier in broker.tiers:
        tier.statistics.waiting, tier.statistics.held = 7, 9
    request = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    response = broker.admin.get_runtime_info(broker.connection, request)
    table = KVTable.decode(response.body).table
    assert set(_APACHES_KEYS.split()) <= set(table)
    assert all(isinstance(text, str) and text for text in table.values())
    assert (table["brokerVersion"], table["brokerVersionDesc"]) == ("479", "V5_3_3")
    assert (table["sendThreadPoolQueueSize"], table["sendThreadPoolQueueCapacity"]) == ("7", "10")
    assert table["pullThreadPoolQueueSize"] == "7", "held pulls are no backlog"
    assert table["remainHowManyDataToFlush"] == "2.0 KiB"
    assert table["commitLogDirCapacity"].startswith("Total : ")
    # `mqadmin clusterList` reads these as numbers.
    for key in ("putTps", "getTransferredTps"):
        assert [float(part) for part in table[key].split()] == [0.0, 0.0, 0.0]
    for key in ("timerReadBehind", "earliestMessageTimeStamp", "pageCacheLockTimeMills"):
        int(table[key])


async def test_runtime_info_tells_the_longest_wait_for_the_loop(tmp_path: Path) -> None:
    broker = _Broker(tmp_path)
    sends = int(RequestCode.SEND_MESSAGE_V2)
    broker.runtime_info.oldest_wait_seconds = lambda codes: 1.25 if sends in codes else 0.0
    table = broker.runtime_info.collect()
    assert table["sendThreadPoolQueueHeadWaitTimeMills"] == "1250"
    assert table["pullThreadPoolQueueHeadWaitTimeMills"] == "0"


async def test_runtime_info_distinguishes_disks(tmp_path: Path) -> None:
    broker = _Broker(tmp_path)
    broker.disk.log_use = DiskUse(tmp_path / "commitlog", 750, 250)
    broker.disk.queue_use = DiskUse(tmp_path / "consumequeue", 1, 2)
    request = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = KVTable.decode(broker.admin.get_runtime_info(broker.connection, request).body).table
    assert table["commitLogDiskRatio"] == table[f"commitLogDiskRatio_{tmp_path}/commitlog"] == "0.7500"
    assert table["consumeQueueDiskRatio"] == "0.3333"
