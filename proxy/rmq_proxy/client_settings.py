"""Settings that clients get: their own, with the policies of the proxy and of the consumer group.

Source: Apache RocketMQ 5.3.3, GrpcClientSettingsManager.
"""

from __future__ import annotations

from rmq_remoting.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)

from .metadata import Metadata
from .protocol.definition_pb2 import Settings
from .settings import ProxySettings


class ClientSettings:
    """Builds the settings of clients."""

    def __init__(self, settings: ProxySettings, metadata: Metadata) -> None:
        self._settings = settings
        self._metadata = metadata

    def complete(self, reported: Settings) -> Settings:
        """Return settings to keep: those that a consumer did not report have the defaults of a group."""
        if not reported.HasField("subscription"):
            return reported
        completed = Settings()
        self._add_group(completed, SubscriptionGroupConfig(group_name=""))
        completed.MergeFrom(reported)
        return completed

    async def merged(self, kept: Settings) -> Settings:
        """Return the settings for the client."""
        merged = Settings()
        merged.CopyFrom(kept)
        if kept.HasField("publishing"):
            self._add_producer_policy(merged)
        elif kept.HasField("subscription"):
            group = await self._metadata.group(kept.subscription.group.name)
            if group is not None:
                self._add_group(merged, group)
        merged.metric.Clear()
        merged.metric.on = False
        return merged

    async def delivery(self, kept: Settings) -> tuple[bool, int]:
        """Return whether a consumer's messages are delivered in order, and the most attempts of each."""
        group = await self._metadata.group(kept.subscription.group.name)
        if group is None:
            return kept.subscription.fifo, kept.backoff_policy.max_attempts
        return group.consume_message_orderly, group.retry_max_times + 1

    def _add_producer_policy(self, merged: Settings) -> None:
        settings = self._settings
        policy = merged.backoff_policy
        policy.max_attempts = settings.producer_max_attempts
        backoff = policy.exponential_backoff
        backoff.initial.FromMilliseconds(settings.producer_backoff_initial_ms)
        backoff.max.FromMilliseconds(settings.producer_backoff_max_ms)
        backoff.multiplier = settings.producer_backoff_multiplier
        merged.publishing.validate_message_type = settings.enable_topic_message_type_check
        merged.publishing.max_body_size = settings.max_message_size

    def _add_group(self, merged: Settings, group: SubscriptionGroupConfig) -> None:
        subscription = merged.subscription
        subscription.receive_batch_size = self._settings.long_polling_batch_size
        subscription.long_polling_timeout.FromMilliseconds(self._settings.max_long_polling_ms)
        subscription.fifo = group.consume_message_orderly
        policy = merged.backoff_policy
        policy.max_attempts = group.retry_max_times + 1
        retry = group.group_retry_policy
        if retry.type is GroupRetryPolicyType.EXPONENTIAL:
            delays = retry.exponential_retry_policy or ExponentialRetryPolicy()
            policy.exponential_backoff.initial.FromMilliseconds(delays.initial)
            policy.exponential_backoff.max.FromMilliseconds(delays.max)
            policy.exponential_backoff.multiplier = delays.multiplier
        else:
            # Setting a field of this oneof drops the other kind of backoff.
            policy.customized_backoff.Clear()
            for delay_ms in (retry.customized_retry_policy or CustomizedRetryPolicy()).next:
                policy.customized_backoff.next.add().FromMilliseconds(delay_ms)
