"""The root of all errors that the SDK raises.

It is here because the SDK hands out messages of this package, whose checks raise such errors, too. The tree
of the SDK is in `rmq_client.errors`.
"""

from __future__ import annotations


class ClientError(Exception):
    """Root of all errors of the SDK.

    `is_outcome_unknown`: a server may have acted on the request all the same, so a message of a failed send
    may have been stored. If it is false, the message was not stored.
    """

    is_outcome_unknown: bool = False
