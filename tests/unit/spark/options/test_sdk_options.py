"""Settings of the SDK as options: none forgotten."""

from __future__ import annotations

from dataclasses import fields

from pyspark_rocketmq.options.sdk_options import SdkOptions
from rmq_client import ClientSettings
from rmq_remoting.command import Serialization

from .samples import NAME_SERVERS

_NOT_OFFERED = {
    "instance_name",  # workers of one machine would share it, and with it a client id
    "connection",  # bounds of the connector's own making
}


def _read(**options: str) -> SdkOptions:
    given = {**NAME_SERVERS, **{f"rocketmq.{name}": text for name, text in options.items()}}
    return SdkOptions.model_validate(given)


def test_defaults_are_those_of_the_sdk() -> None:
    assert _read().client_settings == ClientSettings()


def test_every_setting_of_the_sdk_can_be_given() -> None:
    settings = _read(
        **{"serialize.type": "JSON"},
        requestTimeout="1",
        connectTimeout="2",
        heartbeatInterval="3",
        routeRefreshInterval="4",
        maxUnpackedBodyBytes="5",
    ).client_settings
    assert settings == ClientSettings(
        serialization=Serialization.JSON,
        request_timeout_seconds=0.001,
        connect_timeout_seconds=0.002,
        heartbeat_seconds=0.003,
        route_refresh_seconds=0.004,
        max_unpacked_body_bytes=5,
    )
    defaults = ClientSettings()
    changed = {
        field.name
        for field in fields(settings)
        if getattr(settings, field.name) != getattr(defaults, field.name)
    }
    assert changed == {field.name for field in fields(ClientSettings)} - _NOT_OFFERED
