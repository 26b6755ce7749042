"""The checksum that a broker can append to a stored record as its last property, `__CRC32#`.

20 bytes, which are not part of what the checksum covers (Apache RocketMQ 5.3.3, CommitLog.CRC32_RESERVED_LEN
and MessageDecoder.createCrc32): the name, 0x01, the CRC-32 without its highest bit as 10 decimal digits with
the **lowest digit first**, 0x02.
"""

from __future__ import annotations

import zlib
from typing import Final

from .message_properties import PROPERTY_CRC32

_PREFIX: Final = f"{PROPERTY_CRC32}\x01".encode()
_DIGITS: Final = 10
RECORD_CHECKSUM_BYTES: Final = len(_PREFIX) + _DIGITS + 1


def record_checksum_property(record: bytes) -> bytes:
    """The 20 bytes to put after `record`, which is the whole record up to them."""
    digits = f"{zlib.crc32(record) & 0x7FFFFFFF:010d}"[::-1]
    return _PREFIX + digits.encode() + b"\x02"


def record_checksum_matches(record: bytes) -> bool:
    """Whether a whole record ends with the right checksum; False as well where it ends with none."""
    covered = record[:-RECORD_CHECKSUM_BYTES]
    return record[-RECORD_CHECKSUM_BYTES:] == record_checksum_property(covered)
