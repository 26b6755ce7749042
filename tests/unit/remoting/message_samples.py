"""Messages for tests: golden rows as objects, and hypothesis strategies."""

from __future__ import annotations

import ipaddress
from typing import Any

from hypothesis import strategies as st

from rmq_remoting.message import MessageExt
from rmq_remoting.socket_addresses import HostPort


def same_address(address: HostPort, host: str, port: int) -> bool:
    """Whether an address is `host` and `port`, however an IPv6 address is written."""
    return ipaddress.ip_address(address[0]) == ipaddress.ip_address(host) and address[1] == port


def message_of_row(decoded: dict[str, Any], body: bytes, properties: dict[str, str]) -> MessageExt:
    """A golden row's 'decoded' as the message that it describes."""
    return MessageExt(
        topic=decoded["topic"],
        body=body,
        flag=decoded["flag"],
        properties=properties,
        queue_id=decoded["queueId"],
        queue_offset=decoded["queueOffset"],
        physical_offset=decoded["phyOffset"],
        sys_flag=decoded["sysFlag"],
        born_timestamp=decoded["bornTimestamp"],
        born_host=(decoded["bornHost"], decoded["bornPort"]),
        store_timestamp=decoded["storeTimestamp"],
        store_host=(decoded["storeHost"], decoded["storePort"]),
        reconsume_times=decoded["reconsumeTimes"],
        prepared_transaction_offset=decoded["preparedTransactionOffset"],
        store_size=decoded["storeSize"],
        body_crc=decoded["bodyCRC"],
    )


def int_of_bits(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


# No surrogates: UTF-8 has no form for one that stands alone.
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = _text.filter(lambda text: text != "" and "\x01" not in text and "\x02" not in text)
values = _text.filter(lambda text: text != "" and "\x02" not in text)
properties = st.dictionaries(names, values, max_size=6)
topics = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
addresses = st.tuples(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), st.integers(0, 65535))

# A host bit follows from the host; the bits of compression and inner batches have tests of their own.
_PLAIN_SYS_FLAG_BITS = 0x0000_0F0E

messages = st.builds(
    MessageExt,
    topic=topics,
    body=st.binary(max_size=200),
    flag=int_of_bits(32),
    properties=properties,
    queue_id=int_of_bits(32),
    queue_offset=int_of_bits(64),
    physical_offset=int_of_bits(64),
    sys_flag=st.integers(0, 0xFFFF).map(lambda bits: bits & _PLAIN_SYS_FLAG_BITS),
    born_timestamp=int_of_bits(64),
    born_host=addresses,
    store_timestamp=int_of_bits(64),
    store_host=addresses,
    reconsume_times=int_of_bits(32),
    prepared_transaction_offset=int_of_bits(64),
    version=st.sampled_from([1, 2]),
)
