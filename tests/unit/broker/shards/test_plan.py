"""Derived settings of shards: ports, folders, names; settings that shards cannot share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmq_broker.settings.broker import BrokerSettings, known_keys
from rmq_broker.shards.plan import PORT_STEP, check_root, plan_shards, shard_count, usable_cores
from rmq_remoting.daemon.configuration import Override, SettingsError, load


def _settings(**keys: object) -> BrokerSettings:
    overrides = [Override(key, str(value)) for key, value in {"brokerName": "b", **keys}.items()]
    return load(BrokerSettings, overrides=overrides, known_keys=known_keys).settings


def _refusal(**keys: object) -> str:
    with pytest.raises(SettingsError) as refused:
        plan_shards(_settings(**keys), 2)
    return str(refused.value)


def test_each_shard_has_a_name_ports_and_a_folder_of_its_own() -> None:
    plans = plan_shards(_settings(storePathRootDir="/data"), 3)

    assert [plan.broker_name for plan in plans] == ["b-0", "b-1", "b-2"]
    assert [plan.listen_port for plan in plans] == [10911, 10921, 10931]
    assert [plan.store for plan in plans] == [Path(f"/data/shard-{number}") for number in range(3)]
    assert plans[1].settings == {
        "brokerName": "b-1",
        "listenPort": "10921",
        "fastListenPort": "10919",
        "haListenPort": "10922",
        "storePathRootDir": "/data/shard-1",
        "metricsPromExporterHost": "127.0.0.1",
        "metricsPromExporterPort": "10923",
    }


def test_derived_settings_are_those_of_a_broker_with_this_listen_port() -> None:
    plan = plan_shards(_settings(), 2)[1]
    settings = _settings(**plan.settings)

    assert settings.fast_listen_port == _settings(listenPort=plan.listen_port).fast_listen_port
    assert settings.ha_listen_port == _settings(listenPort=plan.listen_port).ha_listen_port


def test_shards_have_no_port_in_common() -> None:
    ports = [port for plan in plan_shards(_settings(), 20) for port in plan.ports]

    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"listenPort": 0}, "listenPort=0 is no number"),
        ({"fastListenPort": 20000}, "fastListenPort=20000 cannot be shared; leave it out"),
        ({"fastListenPort": 0}, "fastListenPort=0 cannot be shared"),
        ({"haListenPort": 20000}, "haListenPort=20000 cannot be shared; leave it out"),
        ({"storePathCommitLog": "/log"}, "storePathCommitLog=/log cannot be shared; leave it out"),
        ({"listenPort": 65530}, "needs the ports 65528 to 65542, and ports are 1 to 65535"),
        ({"listenPort": 65530}, "or at most 1 shards"),
        ({"listenPort": 2, "fastListenPort": 0}, "needs the ports 0 to 14"),
        ({"metricsPromExporterPort": 10921}, "metricsPromExporterPort=10921 is a port of b-1"),
        ({"metricsPromExporterPort": 10923}, "metricsPromExporterPort=10923 is a port of b-1"),
    ],
)
def test_settings_that_shards_cannot_share_are_refused(keys: dict[str, object], told: str) -> None:
    assert told in _refusal(**keys)


def test_replicas_are_refused() -> None:
    replica = _settings().model_copy(update={"broker_role": "SLAVE"})

    with pytest.raises(SettingsError, match="brokerRole=SLAVE is not supported with shards"):
        plan_shards(replica, 2)


def test_shards_have_no_controller() -> None:
    controlled = _settings().model_copy(update={"enable_controller_mode": True})
    with pytest.raises(SettingsError, match="enableControllerMode=true is not supported with shards"):
        plan_shards(controlled, 2)


def test_every_reason_of_a_refusal_is_told() -> None:
    refusal = _refusal(fastListenPort=20000, haListenPort=20001)

    assert "fastListenPort" in refusal and "haListenPort" in refusal


def test_derived_ports_may_be_given() -> None:
    assert plan_shards(_settings(fastListenPort=10909, haListenPort=10912), 2)


def test_a_port_of_metrics_counts_only_if_metrics_are_served() -> None:
    assert plan_shards(_settings(metricsPromExporterPort=10921, metricsExporterType="DISABLE"), 2)


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("16", 16), ("256", 256)])
def test_the_number_of_shards_is_a_number(text: str, count: int) -> None:
    assert shard_count(text) == count


@pytest.mark.parametrize("text", ["0", "-1", "257", "many", "", "1.5", "²", "9999999999"])
def test_another_number_of_shards_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="must be auto, or a whole number from 1 to 256"):
        shard_count(text)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this system")
def test_auto_is_the_number_of_usable_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 3, 5})

    assert shard_count("auto") == usable_cores() == 3


def test_folders_of_fewer_shards_are_accepted(tmp_path: Path) -> None:
    check_root(tmp_path / "new", 2)
    (tmp_path / "shard-1").mkdir()
    (tmp_path / "shard-other").mkdir()

    check_root(tmp_path, 2)


def test_a_folder_of_a_shard_that_would_not_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shard-3").mkdir()

    with pytest.raises(SettingsError, match="would not be delivered; set --shards 4"):
        check_root(tmp_path, 2)


def test_the_store_of_a_single_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    with pytest.raises(SettingsError, match="is the store of a broker without shards"):
        check_root(tmp_path, 2)


def test_the_step_leaves_room_for_all_ports_of_a_shard() -> None:
    ports = plan_shards(_settings(), 1)[0].ports

    assert max(ports) - min(ports) < PORT_STEP
