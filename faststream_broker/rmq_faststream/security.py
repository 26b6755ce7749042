"""FastStream's security objects as settings of the SDK."""

from __future__ import annotations

from dataclasses import replace

from faststream.exceptions import SetupError
from faststream.security import BaseSecurity, SASLPlaintext

from rmq_client import ClientSettings, Credentials


def secured(settings: ClientSettings, security: BaseSecurity | None) -> ClientSettings:
    """Return the settings with TLS, and with user name and password as access key and secret key.

    Raises SetupError for another kind of security, and for settings that have both already.
    """
    if security is None:
        return settings
    if type(security) not in (BaseSecurity, SASLPlaintext):
        raise SetupError(
            f"security={type(security).__name__}(...): RocketMQ has access keys, pass "
            "SASLPlaintext(username=..., password=...), or settings=ClientSettings(credentials=...)"
        )
    if security.use_ssl:
        if settings.tls:
            raise SetupError("TLS is set twice: in security and in settings; drop one of them")
        settings = replace(settings, tls=security.ssl_context or True)
    if isinstance(security, SASLPlaintext):
        if settings.credentials is not None:
            raise SetupError("credentials are set twice: in security and in settings; drop one of them")
        settings = replace(settings, credentials=Credentials(security.username, security.password))
    return settings
