"""The time at which a client made a signed send, read so that nobody can change it afterwards.

A signature covers the values of the ext fields, ordered by name, and the body, all joined into one text
(Apache RocketMQ 5.3.3, AclUtils.combineRequestContent). It covers neither the names nor the places where one
value ends and the next begins. Whoever has recorded a send may therefore call another run of its digits
`bornTimestamp`. So a time counts only among the neighbours that clients send with it, all numbers, with no
further field between them that could hold the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rmq_remoting.codes import RequestCode as Code
from rmq_remoting.codes import ResponseCode
from rmq_remoting.errors import CommandError, shown
from rmq_remoting.headers.send import V1_CODES
from rmq_remoting.signing import ACCESS_KEY, SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq_remoting.command import RemotingCommand

# The requests with such a time: sends, batches, the first phase of transactions, and replies.
TIMED_CODES: Final = frozenset(
    {
        Code.SEND_MESSAGE,
        Code.SEND_MESSAGE_V2,
        Code.SEND_BATCH_MESSAGE,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
    }
)

# Milliseconds since 1970 have 13 digits from 2001 to 2286.
_TIME: Final = re.compile(r"[0-9]{13}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}")
# Characters of topics and brokers. The properties, which follow the time, hold others from the first one on.
_NAME: Final = re.compile(r"[%|.0-9A-Za-z_-]*")

# Default topic, its queues, queue id, system flag, time, flag (SendMessageRequestHeaderV2).
_SHORT_NEIGHBOURS: Final = ["c", "d", "e", "f", "g", "h"]
_SHORT_NUMBERS: Final = ("d", "e", "f", "h")
_LONG_TIME: Final = "bornTimestamp"
_LONG_BEFORE: Final = frozenset({ACCESS_KEY, "batch", "bname"})
_BOOLEANS: Final = ("true", "false")


def signed_time_ms(request: RemotingCommand) -> int:
    """Return the time of a send with a checked signature, in milliseconds since 1970 by the client's clock.

    Raises CommandError (NO_PERMISSION) if the signature does not fix it.
    """
    fields = request.ext_fields
    is_long = request.code in V1_CODES
    time = fields.get(_LONG_TIME if is_long else "g", "")
    is_fixed = _is_fixed_long(fields) if is_long else _is_fixed_short(fields)
    if not is_fixed or not _TIME.fullmatch(time):
        raise CommandError(
            ResponseCode.NO_PERMISSION,
            f"the signature does not fix bornTimestamp={shown(time)}, which signatureReplayWindowSeconds "
            "needs: send the header's fields as Apache's clients do, without others between them",
        )
    return int(time)


def _is_fixed_short(fields: Mapping[str, str]) -> bool:
    names = sorted(fields)
    try:
        place = names.index("g")
    except ValueError:
        return False
    return (
        names[max(0, place - 4) : place + 2] == _SHORT_NEIGHBOURS
        and _NAME.fullmatch(fields["c"]) is not None
        and all(_NUMBER.fullmatch(fields[name]) for name in _SHORT_NUMBERS)
    )


def _is_fixed_long(fields: Mapping[str, str]) -> bool:
    before = {name for name in fields if name < _LONG_TIME and name != SIGNATURE}
    return (
        before <= _LONG_BEFORE
        and fields.get("batch", "false").lower() in _BOOLEANS
        and _NAME.fullmatch(fields.get("bname", "")) is not None
    )
