"""The broker's settings against Apache's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_broker.settings.broker import BrokerSettings, known_keys
from rmq_broker.store.api import FlushDiskType, StoreSettings
from rmq_remoting.daemon.configuration import Configuration, Override, SettingsError, load
from rmq_remoting.daemon.settings import describe_settings
from tests.support.golden import json_file
from tests.support.rows import each_row

# Where a default differs from the class that declares the key in Apache, and why.
_OTHER_DEFAULTS = {
    "listenPort": "10911",  # BrokerStartup sets it
    "haListenPort": "0",  # BrokerStartup sets it; it then becomes listenPort + 1
    "metricsExporterType": "PROM",  # ours: an operator should not be blind
    "transactionOpBatchInterval": "100",  # ours: a killed broker should not ask much again
    "brokerName": "<host name>",
    "brokerIP1": "<address of the interface that leads outside>",
    "brokerIP2": "<address of the interface that leads outside>",
    "namesrvAddr": "${NAMESRV_ADDR}",
}


def _load(*pairs: tuple[str, str]) -> Configuration[BrokerSettings]:
    return load(BrokerSettings, None, [Override(*pair) for pair in pairs], known_keys)


def _refusal(*pairs: tuple[str, str]) -> str:
    with pytest.raises(SettingsError) as caught:
        _load(*pairs)
    return str(caught.value)


def test_every_key_of_apaches_broker_is_known() -> None:
    golden = json_file("settings/apache_defaults.json")
    for owner in (
        "BrokerConfig",
        "MessageStoreConfig",
        "NettyServerConfig",
        "NettyClientConfig",
        "AuthConfig",
    ):
        missing = set(golden[owner]) - set(known_keys())
        assert not missing, owner


def test_the_table_has_apaches_defaults() -> None:
    golden = json_file("settings/apache_defaults.json")
    table = known_keys()
    for owner in ("BrokerConfig", "MessageStoreConfig", "AuthConfig"):
        for key, default in golden[owner].items():
            if default is not None:  # None: it depends on the machine
                assert table[key].default == default, key


def test_defaults_are_apaches_unless_there_is_a_reason() -> None:
    table = known_keys()
    for info in describe_settings(BrokerSettings):
        if info.ours:
            assert info.key not in table, info.key
        else:
            assert info.default == _OTHER_DEFAULTS.get(info.key, table[info.key].default), info.key


def test_an_example_of_apaches_distribution_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\ndeleteWhen = 04\n"
        "fileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType = ASYNC_FLUSH\n"
    )
    configuration = load(BrokerSettings, path, (), known_keys)
    assert configuration.settings.broker_name == "broker-a"
    assert configuration.settings.file_reserved_hours == 48
    assert configuration.unused == {}


def test_a_master_has_id_0() -> None:
    configuration = _load(("brokerId", "3"))
    assert configuration.settings.broker_id == 0
    note = "brokerId=3 is ignored: a master's id is 0; brokerRole=SLAVE makes a replica"
    assert configuration.notes == [note]


@each_row(
    ("given", "said"),
    [
        ({"brokerRole": "SLAVE"}, "brokerRole=SLAVE needs a brokerId above 0"),
        ({"minInSyncReplicas": "2"}, "minInSyncReplicas=2 needs brokerRole=SYNC_MASTER"),
        ({"inSyncReplicas": "2"}, "inSyncReplicas=2 needs brokerRole=SYNC_MASTER"),
        (
            {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "minInSyncReplicas": "3"},
            "minInSyncReplicas=3 is more than inSyncReplicas=2",
        ),
        (
            {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "3", "totalReplicas": "2"},
            "inSyncReplicas=3 is more than totalReplicas=2",
        ),
        ({"haAllowedReplicas": "10.0.0.300"}, "IP addresses or networks"),
        ({"haMasterAddress": "10.0.0.3"}, "host:port"),
        ({"enableControllerMode": "true"}, "enableControllerMode=true needs controllerAddr"),
        ({"enableControllerMode": "true", "controllerAddr": "c"}, "'c' is no host:port"),
        (
            {
                "enableControllerMode": "true",
                "controllerAddr": "c:1;d:1",
                "fetchControllerAddrByDnsLookup": "true",
            },
            "needs one name in controllerAddr",
        ),
        (
            {
                "enableControllerMode": "true",
                "controllerAddr": "c:1",
                "inSyncReplicas": "1",
                "minInSyncReplicas": "2",
            },
            "minInSyncReplicas=2 is more than inSyncReplicas=1",
        ),
        ({"allAckInSyncStateSet": "true"}, "allAckInSyncStateSet=true needs enableControllerMode=true"),
        ({"asyncLearner": "true"}, "asyncLearner=true needs enableControllerMode=true"),
    ],
)
def test_roles_and_numbers_of_replicas_must_fit(given: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        _load(*given.items())


@pytest.mark.parametrize(
    ("given", "needed"),
    [({}, 2), ({"inSyncReplicas": "1"}, 1), ({"inSyncReplicas": "3"}, 3), ({"minInSyncReplicas": "3"}, 3)],
)
def test_a_synchronous_master_waits_for_a_replica_unless_told_otherwise(
    given: dict[str, str], needed: int
) -> None:
    settings = _load(("brokerRole", "SYNC_MASTER"), *given.items()).settings
    assert settings.required_replicas == needed


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        ({}, (10911, 10909, 10912)),
        ({"listenPort": "7000"}, (7000, 6998, 7001)),
        ({"listenPort": "0"}, (0, 0, 0)),
        ({"listenPort": "7000", "fastListenPort": "0", "haListenPort": "8000"}, (7000, 0, 8000)),
    ],
)
def test_ports_are_derived_from_the_listen_port(given: dict[str, str], ports: tuple[int, int, int]) -> None:
    settings = _load(*given.items()).settings
    assert (settings.listen_port, settings.fast_listen_port, settings.ha_listen_port) == ports


def test_folders_are_derived_from_the_root() -> None:
    store = StoreSettings(store_path_root_dir=Path("/data"))
    assert store.commit_log_dir == Path("/data/commitlog")
    assert store.consume_queue_dir == Path("/data/consumequeue")
    assert store.config_dir == Path("/data/config")
    elsewhere = StoreSettings(store_path_root_dir=Path("/data"), store_path_commit_log=Path("/log"))
    assert elsewhere.commit_log_dir == Path("/log")


def test_consume_queue_files_hold_whole_entries() -> None:
    assert StoreSettings(mapped_file_size_consume_queue=6001).consume_queue_file_bytes == 6020
    assert StoreSettings().consume_queue_file_bytes == 6_000_000


@pytest.mark.parametrize(("given", "in_force"), [("1000", 10_000), ("30000", 30_000), ("90000", 60_000)])
def test_the_registration_period_is_bounded_as_with_apache(given: str, in_force: int) -> None:
    assert _load(("registerNameServerPeriod", given)).settings.registration_period_ms == in_force


def test_name_servers_are_a_list() -> None:
    settings = _load(("namesrvAddr", "a:1; b:2 ;")).settings
    assert settings.name_server_addresses == ["a:1", "b:2"]


@pytest.mark.parametrize("bad", ["127.0.0.1", "a:0", "a:b", ":9876", "a:1;b"])
def test_bad_name_servers_are_refused(bad: str) -> None:
    assert "must be host:port" in _refusal(("namesrvAddr", bad))


def test_name_servers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "ns:9876")
    assert _load().settings.name_server_addresses == ["ns:9876"]
    assert _load(("namesrvAddr", "other:1")).settings.name_server_addresses == ["other:1"]


def test_the_low_watermark_must_be_below_the_high_one() -> None:
    assert "writeBufferLowWaterMark=9000000" in _refusal(("writeBufferLowWaterMark", "9000000"))
    assert _load(("writeBufferHighWaterMark", "65536")).settings.write_low_bytes == 16384


def test_metrics_labels_are_pairs() -> None:
    settings = _load(("metricsLabel", "zone:a, team : b,broken")).settings
    assert settings.metrics_extra_labels == {"zone": "a", "team": "b"}


def test_protected_keys_cannot_be_changed_over_the_network() -> None:
    settings = _load(("configBlackList", "a; b")).settings
    assert settings.protected_keys == {"a", "b", "configBlackList", "brokerConfigPath", "rocketmqHome"}


def test_the_flush_type_needs_a_restart() -> None:
    configuration = _load()
    assert configuration.settings.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    with pytest.raises(SettingsError, match="flushDiskType=SYNC_FLUSH: takes effect only at start"):
        configuration.update({"flushDiskType": "SYNC_FLUSH"})


def test_a_loopback_address_that_was_not_set_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    field = BrokerSettings.model_fields["broker_ip1"]
    monkeypatch.setattr("rmq_remoting.host._route_source", lambda *_: None)
    monkeypatch.setattr("rmq_remoting.host._address_of_host_name", lambda: "127.0.0.1")
    assert field.get_default(call_default_factory=True) == "127.0.0.1"
    assert "clients on other machines cannot connect" in _load().notes[0]
    assert _load(("brokerIP1", "127.0.0.1")).notes == []


@pytest.mark.parametrize(("text", "hours"), [("04", {4}), ("4; 16;23", {4, 16, 23}), ("00", {0})])
def test_hours_of_deletion(text: str, hours: set[int]) -> None:
    assert _load(("deleteWhen", text)).settings.delete_hours == hours


@pytest.mark.parametrize("text", ["", "24", "4am", "04,16", "04;", "-1"])
def test_invalid_hours_of_deletion_are_refused(text: str) -> None:
    assert "deleteWhen" in _refusal(("deleteWhen", text))


def test_a_controller_decides_the_role() -> None:
    configuration = _load(
        ("enableControllerMode", "true"),
        ("controllerAddr", " 10.0.0.1:9878; 10.0.0.2:9878 "),
        ("brokerRole", "SLAVE"),
        ("haMasterAddress", "10.0.0.9:10912"),
        ("inSyncReplicas", "2"),
    )
    settings = configuration.settings
    assert settings.controller_addresses == ["10.0.0.1:9878", "10.0.0.2:9878"]
    assert settings.ha_master_address == ""
    assert not settings.waits_for_in_sync_set
    ignored, lossy = configuration.notes[:2], configuration.notes[2]
    assert [note.partition(" ")[0] for note in ignored] == ["brokerRole", "haMasterAddress"]
    assert "a failover may lose messages" in lossy
