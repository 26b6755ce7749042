"""Settings of a broker for tests of its parts. (For a whole broker: `broker_configuration`.)"""

from __future__ import annotations

from rmq_broker.settings.broker import BrokerSettings


def broker_settings(**keys: object) -> BrokerSettings:
    """Settings by Apache's keys, the rest with defaults."""
    return BrokerSettings.model_validate({"brokerName": "broker-a", **keys})
