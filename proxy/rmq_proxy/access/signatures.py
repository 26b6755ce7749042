"""Signatures of calls: gRPC metadata `authorization` and `x-mq-date-time`.

A client signs the date with HMAC-SHA1 and its password. The signature covers nothing else of the call.
Source: Apache RocketMQ 5.3.3, DefaultAuthenticationContextBuilder and DefaultAuthenticationHandler.
"""

from __future__ import annotations

import hmac
from binascii import Error as HexError
from binascii import unhexlify
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"

# Longer texts are refused before any work. Names and passwords have at most 255 characters.
_MAX_CHARACTERS: Final = 4096
_MAX_NAME_CHARACTERS: Final = 255


class SignatureProblem(Exception):
    """Metadata that cannot be a signature; the message is for the client."""


@dataclass(frozen=True, slots=True)
class SignedCall:
    """The user that a call names, the date, and the signature of the date."""

    user: str
    date_time: str
    signature: bytes

    @classmethod
    def of(cls, metadata: Mapping[str, str | bytes]) -> SignedCall:
        """Parse the metadata of a call. Raises SignatureProblem."""
        authorization = _text(metadata, AUTHORIZATION)
        if not authorization:
            raise SignatureProblem(
                "username cannot be null. The call has no access keys: set the client's credentials"
            )
        date_time = _text(metadata, DATE_TIME)
        if not date_time:
            raise SignatureProblem("datetime is null.")
        _, separator, items = authorization.partition(" ")
        if not separator:
            raise SignatureProblem("authentication header is incorrect.")
        values: dict[str, str] = {}
        for item in items.split(","):
            name, separator, value = item.strip().partition("=")
            if not separator:
                raise SignatureProblem("authentication keyValues length is incorrect, actual length=1.")
            values[name] = value
        user = values.get("Credential", "").split("/")[0]
        if not user:
            raise SignatureProblem(
                "username cannot be null. The call has no access keys: set the client's credentials"
            )
        if len(user) > _MAX_NAME_CHARACTERS:
            raise SignatureProblem(f"the username must have at most {_MAX_NAME_CHARACTERS} characters.")
        try:
            signature = unhexlify(values.get("Signature", ""))
        except (HexError, ValueError) as error:
            raise SignatureProblem("create authentication context error.") from error
        return cls(user, date_time, signature)

    def is_by(self, password: str) -> bool:
        """Whether this password made the signature."""
        expected = hmac.digest(password.encode(), self.date_time.encode(), "sha1")
        return hmac.compare_digest(expected, self.signature)


def _text(metadata: Mapping[str, str | bytes], key: str) -> str:
    value = metadata.get(key, "")
    if len(value) > _MAX_CHARACTERS:
        raise SignatureProblem(f"{key} has {len(value)} characters, the limit is {_MAX_CHARACTERS}.")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
