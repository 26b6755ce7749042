"""The head of a plain record: one whose hosts are IPv4 addresses, and whose topic has at most 127 bytes.

Bulk readers of the log decode it in place, without an object for each record (recovery and the index).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, cast

from rmq_remoting.sys_flags import MessageSysFlag

from .record import MAGIC_V1

PLAIN_HEAD: Final = Struct(">iiii4xqqi16xq20xi")
PLAIN_HEAD_BYTES: Final = PLAIN_HEAD.size
# Size, magic, CRC of the body, queue id, queue offset, physical offset, sys flag, store time, body's bytes.
PlainHead = tuple[int, int, int, int, int, int, int, int, int]
unpack_plain_head: Final = cast(Callable[[bytes, int], PlainHead], PLAIN_HEAD.unpack_from)
PLAIN_MAGIC: Final = MAGIC_V1
# A record with one of these bits is not plain: half messages and messages that were rolled back are not.
UNUSUAL_BITS: Final = (
    MessageSysFlag.BORN_HOST_V6 | MessageSysFlag.STORE_HOST_V6 | MessageSysFlag.TRANSACTION_PREPARED
)
MAX_PLAIN_TOPIC_BYTES: Final = 127
