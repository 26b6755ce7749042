"""The checksum that a broker can append to a stored record as its last property, `__CRC32#`.

The property takes 20 bytes, which the checksum does not cover: the name, 0x01, the CRC-32 without its highest
bit as 10 decimal digits with the **lowest digit first**, 0x02 (Apache RocketMQ 5.3.3,
CommitLog.CRC32_RESERVED_LEN and MessageDecoder.createCrc32).
"""

from __future__ import annotations

import zlib
from typing import Final

from .message_properties import PROPERTY_CRC32

_PREFIX: Final = f"{PROPERTY_CRC32}\x01".encode()
_DIGITS: Final = 10
RECORD_CHECKSUM_BYTES: Final = len(_PREFIX) + _DIGITS + 1


def record_checksum_property(record: bytes) -> bytes:
    """Return the 20 bytes to append to `record`, which is the whole record before them."""
    digits = f"{zlib.crc32(record) & 0x7FFFFFFF:010d}"[::-1]
    return _PREFIX + digits.encode() + b"\x02"


def record_checksum_matches(record: bytes) -> bool:
    """Return whether a whole record ends with its checksum; False if it ends with a wrong one or none."""
    covered = record[:-RECORD_CHECKSUM_BYTES]
    return record[-RECORD_CHECKSUM_BYTES:] == record_checksum_property(covered)
