"""The check of each call: the signature first, then the rights of its user.

Source: Apache RocketMQ 5.3.3, AuthenticationPipeline and AuthorizationPipeline. Apache's proxy takes the user
for the second check from a header that clients can set, too. Here it is the user of the signature.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from rmq_client.errors import ClientError
from rmq_remoting.daemon.access.needs import Need
from rmq_remoting.daemon.access.policies import Acl, Decision
from rmq_remoting.daemon.access.users import User
from rmq_remoting.errors import shown
from rmq_remoting.peer_address import Address, address_of
from rmq_remoting.repeated_event import RepeatedEvent

from ..access_settings import ProxyAccessSettings
from ..protocol.definition_pb2 import Code
from ..statuses import Refusal
from .directory import Directory
from .needs import needs_of
from .signatures import SignatureProblem, SignedCall

log = logging.getLogger("rmq.audit")

# At most one line about refused calls per interval, so that nobody can fill the log.
_LOG_SECONDS: Final = 1.0


class AccessControl:
    """Admits the calls of known users with a valid signature, as far as their rules allow."""

    def __init__(self, directory: Directory, settings: ProxyAccessSettings) -> None:
        self._directory = directory
        self._checks_rights = settings.authorization_enabled
        self._without_signature = settings.authentication_whitelist_names
        self._without_rights = settings.authorization_whitelist_names
        self._unknown = RepeatedEvent(_LOG_SECONDS)
        self._denied = RepeatedEvent(_LOG_SECONDS)

    async def check(self, metadata: Mapping[str, str | bytes], host: str, request: Any) -> None:
        """Raise Refusal (UNAUTHORIZED) unless the call's user may make the request from this host.

        Raises ClientError if no broker tells who the user is.
        """
        method = request.DESCRIPTOR.full_name
        user = await self._authenticated(metadata, host, method)
        if not self._checks_rights or method in self._without_rights or (user is not None and user.is_super):
            return
        name = "" if user is None else user.name
        needs = needs_of(request)
        if not needs:
            return
        acl = None if user is None else await self._directory.acl(name)
        source = address_of(host)
        for need in needs:
            problem = _problem(name, acl, need, host, source)
            if problem:
                self._deny(name, need, method, host, problem)

    async def stop(self) -> None:
        """Cancel the requests for users in flight."""
        await self._directory.stop()

    async def _authenticated(
        self, metadata: Mapping[str, str | bytes], host: str, method: str
    ) -> User | None:
        """Return the user that signed the call; None only for a call of the white list."""
        try:
            signed = SignedCall.of(metadata)
            user = await self._directory.user(signed.user)
            if user is None:
                raise SignatureProblem(f"User:{signed.user} is not found.")
            if not user.is_enabled:
                raise SignatureProblem(f"User:{signed.user} is disabled.")
            if not signed.is_by(user.password):
                raise SignatureProblem("check signature failed.")
        except SignatureProblem as problem:
            if method in self._without_signature:
                return None
            if count := self._unknown.occurred():
                log.warning(
                    "gRPC authentication failed request=%s peer=%s refused=%d cause=%s",
                    method,
                    host,
                    count,
                    shown(str(problem)),
                )
            raise Refusal(Code.UNAUTHORIZED, str(problem)) from problem
        except ClientError:
            if method in self._without_signature:
                return None
            raise
        return user

    def _deny(self, name: str, need: Need, method: str, host: str, problem: str) -> None:
        """Log and raise the refusal."""
        if count := self._denied.occurred():
            log.warning(
                "gRPC access denied user=%s request=%s resource=%s action=%s peer=%s denied=%d",
                shown(name),
                method,
                shown(str(need.resource)),
                "/".join(need.actions),
                host,
                count,
            )
        raise Refusal(Code.UNAUTHORIZED, problem)


def _problem(name: str, acl: Acl | None, need: Need, host: str, source: Address | None) -> str:
    """Return why a need is not allowed; an empty text if it is."""
    decision = None if acl is None else acl.decide(need.resource, need.actions, source)
    if decision is Decision.ALLOW:
        return ""
    detail = "no matched policies." if decision is None else "the decision is deny."
    wanted = " or ".join(need.actions)
    return f"User:{name} has no permission to access {need.resource} from {host} ({wanted}), {detail}"
