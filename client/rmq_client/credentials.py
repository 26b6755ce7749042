"""Access keys, by which servers with access control authenticate this client."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmq_remoting.signing import RequestSigner

from .errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key (the user's name, with Apache RocketMQ 5) and its secret key (the user's password).

    The client signs every request with them. The secret key itself never leaves the process. `security_token`
    belongs to temporary keys. Raises InvalidArgumentError.
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
        """Return the signer of requests."""
        return RequestSigner(self.access_key, self.secret_key, self.security_token)


def _check(name: str, value: object) -> None:
    """Check one value. Errors never contain the value."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"credentials: {name} must be a str, not {type(value).__name__}")
    if not value:
        raise InvalidArgumentError(f"credentials: {name} is empty")
    if value != value.strip():
        raise InvalidArgumentError(f"credentials: {name} begins or ends with white space: remove it")
    if not value.isprintable():
        raise InvalidArgumentError(
            f"credentials: {name} contains characters that are not printable: remove them"
        )
