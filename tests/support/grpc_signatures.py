"""Signatures of gRPC calls, made as Apache's 5.x clients make them."""

from __future__ import annotations

import hashlib
import hmac

from rmq_client import Credentials

DATE = "20261127T021500Z"


def signature_of(
    keys: Credentials, date: str = DATE, *, signed_date: str | None = None
) -> list[tuple[str, str]]:
    """Return the metadata of a signed call; `signed_date` is another date than that of the call."""
    signature = hmac.new(keys.secret_key.encode(), (signed_date or date).encode(), hashlib.sha1).hexdigest()
    credential = f"Credential={keys.access_key}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return [("x-mq-date-time", date), ("authorization", f"MQv2-HMAC-SHA1 {credential}")]
