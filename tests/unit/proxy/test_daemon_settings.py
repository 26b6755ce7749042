"""Settings: Apache's keys and defaults, files in Apache's form, and refused values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmq_proxy.apache_settings import known_keys, read_json
from rmq_proxy.daemon_settings import ProxyDaemonSettings
from rmq_proxy.local_settings import LocalProxySettings, load_local_settings
from rmq_remoting.daemon.configuration import SettingsError, load
from rmq_remoting.daemon.settings import describe_settings
from rmq_remoting.daemon.tls_settings import TlsSettings

_OTHER_DEFAULTS = {"metricsExporterType": "PROM"}  # an operator should not be blind


def test_keys_and_defaults_are_apaches() -> None:
    apache = known_keys()
    settings_of_all_daemons = {info.key for info in describe_settings(TlsSettings)}
    for info in describe_settings(ProxyDaemonSettings):
        if info.ours or info.key == "namesrvAddr":  # of the environment
            continue
        if info.key in settings_of_all_daemons:
            continue
        assert info.default == _OTHER_DEFAULTS.get(info.key, apache[info.key].default), info.key


def test_a_file_of_apaches_proxy_is_read(tmp_path: Path) -> None:
    file = tmp_path / "rmq-proxy.json"
    content = {"proxyMode": "CLUSTER", "grpcServerPort": 9090, "enableProxyAutoRenew": False, "regionId": "r"}
    file.write_text(json.dumps(content))
    configuration = load(ProxyDaemonSettings, overrides=read_json(file), known_keys=known_keys)
    assert configuration.settings.grpc_server_port == 9090
    assert configuration.settings.enable_proxy_auto_renew is False
    assert configuration.unused == {"proxyMode": "CLUSTER", "regionId": "r"}


@pytest.mark.parametrize(
    ("text", "reason"), [("{", "is no JSON"), ("[]", "must be one JSON object"), (None, "cannot be read")]
)
def test_other_files_are_refused(tmp_path: Path, text: str | None, reason: str) -> None:
    file = tmp_path / "rmq-proxy.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=reason):
        read_json(file)


def test_each_form_names_the_other(tmp_path: Path) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text('{"proxyMode": "LOCAL", "grpcServerPort": 1}')
    with pytest.raises(SettingsError, match="start the broker with grpcServerPort"):
        load(ProxyDaemonSettings, overrides=read_json(file), known_keys=known_keys)
    settings = load_local_settings(file, {"grpcServerPort": "8081"})
    assert isinstance(settings, LocalProxySettings)
    assert settings.grpc_server_port == 8081  # the broker decides
    file.write_text('{"proxyMode": "CLUSTER"}')
    with pytest.raises(SettingsError, match="start rmq-proxy"):
        load_local_settings(file, {})
