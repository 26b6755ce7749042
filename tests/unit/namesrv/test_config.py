"""The name server's settings, compared with Apache's."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq_namesrv.config import NamesrvSettings, known_keys
from rmq_remoting.daemon.configuration import Override, SettingsError, load
from rmq_remoting.daemon.settings import describe_settings
from tests.support.golden import json_file

# Where a default differs from the class that declares the key in Apache, and why.
_OTHER_DEFAULTS = {
    "listenPort": "9876",  # NamesrvStartup sets it
    "metricsExporterType": "PROM",  # ours: an operator should not be blind
}


def test_every_key_of_apaches_name_server_is_known() -> None:
    golden = json_file("settings/apache_defaults.json")
    for owner in ("NamesrvConfig", "NettyServerConfig", "NettyClientConfig"):
        assert not set(golden[owner]) - set(known_keys()), owner


def test_defaults_are_apaches_unless_there_is_a_reason() -> None:
    table = known_keys()
    for info in describe_settings(NamesrvSettings):
        if info.ours:
            assert info.key not in table, info.key
        else:
            assert info.default == _OTHER_DEFAULTS.get(info.key, table[info.key].default), info.key


def test_an_example_of_apaches_distribution_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text(
        "enableControllerInNamesrv = false\ncontrollerDLegerGroup = group1\n"
        "controllerDLegerPeers = n0-127.0.0.1:9878;n1-127.0.0.1:9868\ncontrollerDLegerSelfId = n0\n"
    )
    configuration = load(NamesrvSettings, path, (), known_keys)
    assert len(configuration.unused) == 4
    assert len(configuration.notes) == 4


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enableControllerInNamesrv", "true"),
        ("metricsExporterType", "OTLP_GRPC"),
        ("migrateAuthFromV1Enabled", "true"),
    ],
)
def test_values_that_ask_for_a_missing_feature_are_refused(key: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"{key}={value}: .* is not supported by this version; "):
        load(NamesrvSettings, None, [Override(key, value)], known_keys)
    configuration = load(NamesrvSettings, None, (), known_keys)
    with pytest.raises(SettingsError, match="is not supported by this version"):
        configuration.update({key: value})


def test_no_default_is_refused() -> None:
    defaults = {info.key: info.default for info in describe_settings(NamesrvSettings)}
    for rule in NamesrvSettings.unsupported:
        assert not rule.values.match(defaults.get(rule.key, known_keys()[rule.key].default)), rule.key


def test_files_are_in_the_home_folder() -> None:
    assert NamesrvSettings().kv_config_path == Path.home() / "namesrv" / "kvConfig.json"


def test_protected_keys_include_paths() -> None:
    assert NamesrvSettings().protected_keys == {
        "configBlackList",
        "configStorePath",
        "kvConfigPath",
        "rocketmqHome",
    }


def test_users_are_beside_the_key_value_file_or_where_the_operator_wants_them() -> None:
    for keys, folder in (
        ({"kvConfigPath": "/data/kvConfig.json"}, "/data"),
        ({"kvConfigPath": "/data/kvConfig.json", "authConfigPath": "/auth"}, "/auth"),
    ):
        overrides = [Override(key, value) for key, value in keys.items()]
        assert load(NamesrvSettings, None, overrides, known_keys).settings.access_folder == Path(folder)
