"""Arguments of brokers, subscribers and publishers, checked where they are given."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from faststream import AckPolicy
from faststream._internal.constants import EMPTY
from faststream.exceptions import IncorrectState, SetupError
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256

from rmq_client import ClientSettings, Credentials, InvalidArgumentError, InvalidPropertyError
from rmq_faststream import RocketBroker, RocketRouter, TestRocketBroker
from rmq_faststream.security import secured


@pytest.fixture
def broker() -> RocketBroker:
    return RocketBroker("127.0.0.1:1", logger=None)


@pytest.mark.parametrize(
    ("topics", "options", "problem"),
    [
        ([], {}, "topics is empty"),
        ({"orders": "paid"}, {"tags": "open"}, "tags='open': the topics have filters already"),
        ("orders", {"max_messages": 10}, "max_messages=10: several messages at once need batch=True"),
    ],
)
def test_wrong_declarations_are_refused(
    broker: RocketBroker, topics: Any, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SetupError, match=problem):
        broker.subscriber(topics, group="till", **options)


@pytest.mark.parametrize(
    ("broker_policy", "own_policy", "expected"),
    [
        (EMPTY, EMPTY, AckPolicy.NACK_ON_ERROR),
        (AckPolicy.ACK, EMPTY, AckPolicy.ACK),
        (AckPolicy.ACK, AckPolicy.MANUAL, AckPolicy.MANUAL),
    ],
)
def test_the_policy_of_the_subscriber_comes_before_that_of_the_broker(
    broker_policy: AckPolicy, own_policy: AckPolicy, expected: AckPolicy
) -> None:
    broker = RocketBroker("127.0.0.1:1", ack_policy=broker_policy)
    assert broker.subscriber("orders", group="till", ack_policy=own_policy).ack_policy is expected


async def test_two_subscribers_of_a_group_are_refused_at_the_start(broker: RocketBroker) -> None:
    for topic in ("orders", "prices"):

        @broker.subscriber(topic, group="till")
        async def on_message(body: str) -> None: ...

    with pytest.raises(SetupError, match="2 subscribers have group 'till'"):
        await broker.start()


async def test_annotations_without_context_are_explained(broker: RocketBroker) -> None:
    @broker.subscriber("orders", group="till")
    async def on_order(body: str, owner: RocketBroker) -> None: ...

    with pytest.raises(SetupError, match=r"from rmq_faststream\.annotations import RocketBroker"):
        async with TestRocketBroker(broker):
            pass


def test_other_routers_are_refused(broker: RocketBroker) -> None:
    with pytest.raises(TypeError, match="router must be a RocketRouter, not a object"):
        broker.include_router(object())  # type: ignore[arg-type]


async def test_a_router_without_broker_cannot_publish() -> None:
    with pytest.raises(IncorrectState, match="not connected"):
        await RocketRouter().publisher("orders").publish("x")


async def test_a_broker_that_is_not_connected_cannot_publish(broker: RocketBroker) -> None:
    with pytest.raises(IncorrectState, match=r"call `await broker\.connect\(\)` first"):
        await broker.publish("x", "orders")


async def test_get_one_needs_a_running_subscriber_without_handlers(broker: RocketBroker) -> None:
    subscriber = broker.subscriber("orders", group="till")
    with pytest.raises(IncorrectState, match="not running"):
        await subscriber.get_one()
    subscriber(lambda body: None)
    with pytest.raises(IncorrectState, match="has handlers"):
        await subscriber.get_one()


def test_options_that_no_message_can_have_are_refused(broker: RocketBroker) -> None:
    with pytest.raises(TypeError, match="colour"):
        broker.publisher("orders", colour="red")  # type: ignore[call-arg]
    with pytest.raises(InvalidPropertyError, match="holds no space"):
        broker.publisher("orders", keys=["a b"])
    with pytest.raises(InvalidPropertyError, match="TAGS"):
        broker.publisher("orders", headers={"TAGS": "x"})


def test_arguments_that_the_sdk_refuses_are_refused_at_once(broker: RocketBroker) -> None:
    with pytest.raises(InvalidArgumentError, match="group 'a b'"):
        broker.subscriber("orders", group="a b")
    with pytest.raises(InvalidArgumentError, match="there is no tag"):
        broker.subscriber("orders", group="till", tags="||")
    with pytest.raises(TypeError, match="colour"):
        broker.subscriber("orders", group="till", consumer_options={"colour": 1})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="max_message_bytes"):
        RocketBroker(producer_options={"max_message_bytes": 0})


# --- security ---


def test_user_and_password_are_access_key_and_secret_key() -> None:
    settings = secured(ClientSettings(), SASLPlaintext(username="shop", password="secret", use_ssl=True))
    assert settings.credentials == Credentials("shop", "secret")
    assert settings.tls is True


def test_a_context_is_used_for_tls() -> None:
    context = ssl.create_default_context()
    settings = secured(ClientSettings(namespace="eu"), BaseSecurity(ssl_context=context))
    assert settings.tls is context
    assert settings.namespace == "eu"
    assert secured(settings, None) is settings


def test_security_is_not_set_twice() -> None:
    with pytest.raises(SetupError, match="TLS is set twice"):
        secured(ClientSettings(tls=True), BaseSecurity(use_ssl=True))
    settings = ClientSettings(credentials=Credentials("a", "b"))
    with pytest.raises(SetupError, match="credentials are set twice"):
        secured(settings, SASLPlaintext(username="shop", password="secret"))


def test_other_kinds_of_security_are_refused() -> None:
    with pytest.raises(SetupError, match=r"security=SASLScram256\(\.\.\.\): RocketMQ has access keys"):
        RocketBroker(security=SASLScram256(username="shop", password="secret"))
