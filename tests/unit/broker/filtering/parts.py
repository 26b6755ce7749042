"""Builds message filters for tests, connected as in a broker."""

from __future__ import annotations

from rmq_broker.clients.consumers import ConsumerTable
from rmq_broker.filtering.expressions import Expressions
from rmq_broker.filtering.filter_table import ConsumerFilterTable
from rmq_broker.filtering.message_filters import MessageFilters
from rmq_broker.settings.broker import BrokerSettings
from tests.support.clock import Clock


def filter_table(consumers: ConsumerTable, settings: BrokerSettings) -> ConsumerFilterTable:
    """Return a filter table that follows the subscriptions in `consumers`."""
    table = ConsumerFilterTable(settings, Expressions(settings), Clock())
    consumers.on_subscriptions(table.register)
    consumers.on_change(table.members_changed)
    return table


def message_filters(consumers: ConsumerTable, settings: BrokerSettings) -> MessageFilters:
    """Return the message filters of the groups in `consumers`."""
    table = filter_table(consumers, settings)
    return MessageFilters(settings, Expressions(settings), table, consumers.find_subscription)
