"""Filters of subscriptions, and the errors for invalid ones."""

from __future__ import annotations

import pytest

from rmq_broker.clients.client import ConnectedClient
from rmq_broker.clients.consumers import ConsumerTable, Heartbeat
from rmq_broker.clients.subscription import Subscription
from rmq_broker.filtering.message_filters import MessageFilter, MessageFilters
from rmq_remoting.bodies.heartbeat import ConsumerData, SubscriptionData
from rmq_remoting.codes import LanguageCode, ResponseCode
from rmq_remoting.errors import CommandError
from rmq_remoting.java_hash import string_hash_code
from tests.support.broker_settings import broker_settings
from tests.support.peers import Peer
from tests.unit.broker.filtering.parts import message_filters


class _Group:
    """Group CG with one member, whose subscriptions the test sets."""

    def __init__(self, **keys: object) -> None:
        self.settings = broker_settings(**{"enablePropertyFilter": True, **keys})
        self.consumers = ConsumerTable()
        self.filters: MessageFilters = message_filters(self.consumers, self.settings)
        self.peer = Peer()

    def subscribe(self, text: str, version: int = 1, kind: str = "SQL92", topic: str = "T") -> Subscription:
        data = SubscriptionData(topic=topic, sub_string=text, expression_type=kind, sub_version=version)
        client = ConnectedClient(self.peer.connection, "c1", LanguageCode.PYTHON, 479, 0)
        consumer = ConsumerData(group_name="CG", subscription_data_set=[data])
        self.consumers.register(Heartbeat(consumer), client)
        subscription = self.consumers.find_subscription("CG", topic)
        assert subscription is not None
        return subscription

    def refusal(self, subscription: Subscription, version: int = 0, *, inline: bool = False) -> CommandError:
        with pytest.raises(CommandError) as refused:
            if inline:
                self.filters.of_request("CG", subscription)
            else:
                self.filters.of_group("CG", subscription, version)
        return refused.value


def _takes(wanted: MessageFilter, properties: bytes) -> bool:
    assert wanted.tags_codes is None and wanted.properties is not None
    return wanted.properties.matches(properties)


async def test_a_groups_expression() -> None:
    group = _Group()
    subscription = group.subscribe("a > 5")
    wanted = group.filters.of_group("CG", subscription, 1)
    assert _takes(wanted, b"a\x017\x02") and not _takes(wanted, b"a\x015\x02")
    # The same subscription gives an equal filter: a held pull keeps its position.
    assert group.filters.of_group("CG", group.subscribe("a > 5", 2), 2) == wanted
    assert group.filters.of_group("CG", group.subscribe("a > 6", 3), 3) != wanted


async def test_invalid_group_expression_is_refused() -> None:
    group = _Group()
    refused = group.refusal(group.subscribe("a > 5)"))
    assert refused.code == ResponseCode.FILTER_DATA_NOT_EXIST
    assert "group CG" in refused.remark and "character 6" in refused.remark


async def test_versions() -> None:
    group = _Group()
    subscription = group.subscribe("a > 5", 7)
    group.filters.of_group("CG", subscription, 7)
    assert group.refusal(subscription, 8).code == ResponseCode.FILTER_DATA_NOT_LATEST
    unknown = Subscription("U", "a > 5", "SQL92", 7)
    assert group.refusal(unknown, 7).code == ResponseCode.FILTER_DATA_NOT_EXIST


async def test_expressions_are_refused_without_enable_property_filter() -> None:
    group = _Group(enablePropertyFilter=False)
    subscription = group.subscribe("a > 5", 7)
    for inline in (False, True):
        refused = group.refusal(subscription, inline=inline)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "enablePropertyFilter=true" in refused.remark
    group.settings.enable_property_filter = True
    for wanted in (
        group.filters.of_group("CG", subscription, 7),
        group.filters.of_request("CG", subscription),
    ):
        assert _takes(wanted, b"a\x017\x02")


async def test_an_expression_in_the_request() -> None:
    group = _Group()
    wanted = group.filters.of_request("CG", Subscription.parse("T", "a > 5", "SQL92"))
    assert _takes(wanted, b"a\x017\x02")
    for text, kind in (("a >", "SQL92"), ("a > 5", "CLASS")):
        refused = group.refusal(Subscription.parse("T", text, kind), inline=True)
        assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_a_pop_needs_no_setting() -> None:
    filters = _Group(enablePropertyFilter=False).filters
    wanted = filters.of_pop("CG", Subscription.parse("T", "a > 5", "SQL92"))
    assert _takes(wanted, b"a\x017\x02") and not _takes(wanted, b"a\x015\x02")
    with pytest.raises(CommandError, match="character") as refused:
        filters.of_pop("CG", Subscription.parse("T", "a > 5)", "SQL92"))
    assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_tags() -> None:
    filters = _Group(enablePropertyFilter=False).filters
    assert filters.of_group("CG", Subscription("T"), 0) == MessageFilter()
    tags = Subscription.parse("T", "a || b")
    codes = frozenset({string_hash_code("a"), string_hash_code("b")})
    assert filters.of_group("CG", tags, 0) == filters.of_request("CG", tags) == MessageFilter(codes)


async def test_redelivered_messages() -> None:
    group = _Group()
    group.subscribe("a > 5")
    again = Subscription("%RETRY%CG")
    assert group.filters.of_group("CG", again, 0) == MessageFilter()
    group.settings.filter_support_retry = True
    wanted = group.filters.of_group("CG", again, 0)
    assert _takes(wanted, b"RETRY_TOPIC\x01T\x02a\x017\x02")
    assert not _takes(wanted, b"RETRY_TOPIC\x01T\x02a\x015\x02")
    # Messages of a topic without an expression, or of unknown origin, all match.
    assert _takes(wanted, b"RETRY_TOPIC\x01U\x02a\x015\x02")
    assert _takes(wanted, b"a\x015\x02")
    # The current filter applies.
    group.subscribe("a > 4", 2)
    assert _takes(wanted, b"RETRY_TOPIC\x01T\x02a\x015\x02")
    assert group.filters.of_group("CG", again, 0) == wanted
    assert group.filters.of_group("CG", Subscription("T"), 0) == MessageFilter()


async def test_redelivered_messages_after_switch_to_tags() -> None:
    group = _Group(filterSupportRetry=True)
    group.subscribe("a > 5", 10)
    wanted = group.filters.of_group("CG", Subscription("%RETRY%CG"), 0)
    again = b"RETRY_TOPIC\x01T\x02a\x015\x02"
    assert not _takes(wanted, again)
    group.subscribe("*", 20, "TAG")
    assert _takes(wanted, again)
    # Heartbeats of a member with the outdated subscription have no effect.
    group.subscribe("a > 5", 10)
    assert _takes(wanted, again)
    group.subscribe("a > 5", 30)
    assert not _takes(wanted, again)


async def test_redelivered_messages_of_an_unsubscribed_topic() -> None:
    group = _Group(filterSupportRetry=True)
    group.subscribe("a > 5", 10)
    wanted = group.filters.of_group("CG", Subscription("%RETRY%CG"), 0)
    group.subscribe("*", 20, "TAG", "U")
    assert _takes(wanted, b"RETRY_TOPIC\x01T\x02a\x015\x02")


async def test_redelivered_messages_without_members() -> None:
    group = _Group(filterSupportRetry=True)
    group.subscribe("a > 5", 10)
    group.consumers.connection_closed(group.peer.connection)
    wanted = group.filters.of_group("CG", Subscription("%RETRY%CG"), 0)
    assert _takes(wanted, b"RETRY_TOPIC\x01T\x02a\x015\x02")
