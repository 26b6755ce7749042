"""Settings of filters by properties."""

from __future__ import annotations

from rmq_remoting.daemon.settings import (
    JavaBoolean,
    JavaInt,
    Milliseconds,
    SettingsGroup,
    live,
    setting,
)


class FilterSettings(SettingsGroup):
    """Filters

    Filters by message properties; filters.md describes them.
    """

    enable_property_filter: JavaBoolean = live(
        False,
        "enablePropertyFilter",
        "Allow pull consumers to filter messages by properties with SQL92; POP consumers may in any case.",
    )
    filter_lenient: JavaBoolean = live(
        False,
        "filterLenient",
        "Use the part of an SQL92 expression that parses and ignore the rest, as Apache's broker "
        "does, instead of refusing the expression.",
        ours=True,
    )
    filter_support_retry: JavaBoolean = live(
        False,
        "filterSupportRetry",
        "Apply the group's current filter of the original topic to redelivered messages as well.",
    )
    filter_data_clean_time_span_ms: Milliseconds = live(
        24 * 3600 * 1000,
        "filterDataCleanTimeSpan",
        "How long a filter without subscribers is kept.",
    )
    enable_calc_filter_bit_map: JavaBoolean = live(
        False,
        "enableCalcFilterBitMap",
        "Store with each message a bit map of the filters that match it (with enableConsumeQueueExt), "
        "so that old messages that do not match need not be read from disk.",
    )
    max_error_rate_of_bloom_filter: JavaInt = setting(
        20,
        "maxErrorRateOfBloomFilter",
        "Rate of false positives of these bit maps.",
        unit="percent",
        minimum=1,
        maximum=99,
    )
    expect_consumer_num: JavaInt = setting(
        32,
        "expectConsumerNumUseFilter",
        "Number of filters of one topic that the bit maps are sized for.",
        minimum=1,
        maximum=10_000,
    )
