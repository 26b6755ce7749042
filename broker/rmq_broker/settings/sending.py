"""Settings of sends."""

from __future__ import annotations

from rmq_remoting.daemon.settings import (
    JavaBoolean,
    JavaLong,
    JavaString,
    SettingsGroup,
    live,
)


class SendSettings(SettingsGroup):
    """Sending"""

    region_id: JavaString = live("DefaultRegion", "regionId", "Region name in responses and traces.")
    trace_on: JavaBoolean = live(True, "traceOn", "Tell clients that messages may be traced.")
    store_reply_message_enable: JavaBoolean = live(
        True,
        "storeReplyMessageEnable",
        "Store replies in the cluster's reply topic, in addition to forwarding them.",
    )
    message_type_check: JavaBoolean = live(
        False,
        "messageTypeCheck",
        "Refuse messages of another type than the topic's attribute `message.type`; a topic without "
        "it takes NORMAL messages. (With Apache the proxy checks this.)",
        ours=True,
    )
    start_accept_send_request_timestamp_ms: JavaLong = live(
        0,
        "startAcceptSendRequestTimeStamp",
        "Time since 1970 before which sends are refused.",
        unit="ms",
        minimum=0,
    )
