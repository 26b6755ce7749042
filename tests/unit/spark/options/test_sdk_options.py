"""Every setting of the SDK has an option, except the listed ones."""

from __future__ import annotations

import pickle
from dataclasses import fields

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import Mode, ReadOptions
from pyspark_rocketmq.options.sdk_options import SdkOptions
from rmq_client import ClientSettings, Credentials, TlsSettings
from rmq_remoting.command import Serialization

from .samples import NAME_SERVERS, READING

_NOT_OFFERED = {
    "instance_name",  # workers of one machine would share it, and with it a client id
    "connection",  # the connector sets these bounds itself
    "namespace",  # options, offsets and the column `topic` use full names (shop%orders)
}

_TLS = {
    "enable": "true",
    "caFile": "ca.pem",
    "certFile": "spark.pem",
    "keyFile": "spark.key",
    "keyPassword": "open-password",
    "serverName": "brokers.example",
    "verify": "certificate",
}


def _read(**options: str) -> SdkOptions:
    given = {**NAME_SERVERS, **{f"rocketmq.{name}": text for name, text in options.items()}}
    return SdkOptions.read(given, Mode.STREAM)


def test_defaults_are_those_of_the_sdk() -> None:
    assert _read().client_settings == ClientSettings()


def test_every_sdk_setting_has_an_option() -> None:
    settings = _read(
        **{"serialize.type": "JSON"},
        requestTimeout="1",
        connectTimeout="2",
        heartbeatInterval="3",
        routeRefreshInterval="4",
        maxUnpackedBodyBytes="5",
        accessKey="shop",
        secretKey="open-sesame",
        securityToken="0815",
        **{f"tls.{name}": text for name, text in _TLS.items()},
    ).client_settings
    assert settings == ClientSettings(
        serialization=Serialization.JSON,
        request_timeout_seconds=0.001,
        connect_timeout_seconds=0.002,
        heartbeat_seconds=0.003,
        route_refresh_seconds=0.004,
        max_unpacked_body_bytes=5,
        credentials=Credentials("shop", "open-sesame", "0815"),
        tls=TlsSettings(
            "ca.pem", "spark.pem", "spark.key", "open-password", "brokers.example", "certificate"
        ),
    )
    defaults = ClientSettings()
    changed = {
        field.name
        for field in fields(settings)
        if getattr(settings, field.name) != getattr(defaults, field.name)
    }
    assert changed == {field.name for field in fields(ClientSettings)} - _NOT_OFFERED


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (
            {"accessKey": "a"},
            r"rocketmq.secretKey is not given: it must be given, because rocketmq.accessKey is",
        ),
        ({"secretKey": "open-sesame"}, r"rocketmq.accessKey is not given: .* because rocketmq.secretKey is"),
        ({"securityToken": "open-sesame"}, r"rocketmq.accessKey is not .* because rocketmq.securityToken is"),
        (
            {"tls.caFile": "ca.pem"},
            r"tls.enable is not given: it must be true, because rocketmq.tls.caFile is given",
        ),
        (
            {"tls.enable": "false", "tls.verify": "none"},
            r"tls.enable is 'false': .* because rocketmq.tls.verify",
        ),
        (
            {"tls.keyPassword": "open-sesame"},
            r"tls.enable is not given: .* because rocketmq.tls.keyPassword is",
        ),
        ({"tls.enable": "true", "tls.keyFile": "k"}, r"tls.certFile is not given: .* because its key is"),
        (
            {"tls.enable": "true", "tls.verify": "none", "tls.caFile": "ca.pem"},
            r"tls.caFile is 'ca.pem': it must be left out, because rocketmq.tls.verify is none",
        ),
    ],
)
def test_incomplete_credentials_and_tls_settings_are_rejected(given: dict[str, str], complaint: str) -> None:
    options = {f"rocketmq.{name}": text for name, text in given.items()}
    with pytest.raises(OptionError, match=complaint) as refused:
        ReadOptions.for_batch({**READING, **options})
    assert "sesame" not in str(refused.value)


def test_secrets_appear_in_no_text() -> None:
    secret = {"secretKey": "open-sesame", "securityToken": "0815", "tls.keyPassword": "open-password"}
    given = {"accessKey": "shop", "tls.enable": "true", "tls.certFile": "c.pem", **secret}
    options = ReadOptions.for_batch({**READING, **{f"rocketmq.{name}": text for name, text in given.items()}})
    for text in (repr(options), str(options), repr(options.client_settings)):
        assert not any(word in text for word in secret.values())
    assert pickle.loads(pickle.dumps(options)).client_settings == options.client_settings
