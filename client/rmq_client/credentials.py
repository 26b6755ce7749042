"""Access keys: who this client is, to servers with access control."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmq_remoting.signing import RequestSigner

from .errors import UsageError


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key (a user's name, with Apache RocketMQ 5) and its secret key (the user's password).

    With them every request is signed; the secret key itself never leaves the process. `security_token` goes
    along where keys are temporary. Raises UsageError.
    """

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check("access_key", self.access_key)
        _check("secret_key", self.secret_key)
        if self.security_token is not None:
            _check("security_token", self.security_token)

    def signer(self) -> RequestSigner:
        """What signs requests with them."""
        return RequestSigner(self.access_key, self.secret_key, self.security_token)


def _check(name: str, value: object) -> None:
    """No message of these has the value in it."""
    if not isinstance(value, str):
        raise UsageError(f"credentials: {name} has to be a text, not {type(value).__name__}")
    if not value:
        raise UsageError(f"credentials: {name} is empty")
    if value != value.strip():
        raise UsageError(f"credentials: {name} begins or ends with blanks or a line's end: take them off")
    if not value.isprintable():
        raise UsageError(f"credentials: {name} has characters in it that cannot be printed")
