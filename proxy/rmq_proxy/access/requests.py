"""The check of each request on the remoting port: the signature first, then the rights of its user.

Source: Apache RocketMQ 5.3.3, AuthenticationPipeline and AuthorizationPipeline of the remoting port.
"""

from __future__ import annotations

import hmac
import logging
from typing import Final

from rmq_client.errors import ClientError
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.daemon.access.broker_requests import RequestNeeds, topic_need
from rmq_remoting.daemon.access.needs import Need
from rmq_remoting.daemon.access.policies import Action, Decision
from rmq_remoting.daemon.access.users import User
from rmq_remoting.errors import CommandError, shown
from rmq_remoting.peer_address import address_of
from rmq_remoting.repeated_event import RepeatedEvent
from rmq_remoting.signing import ACCESS_KEY, SIGNATURE, RequestSigner

from ..access_settings import ProxyAccessSettings
from .directory import Directory

log = logging.getLogger("rmq.audit")

# At most one line about refused requests per interval, so that nobody can fill the log.
_LOG_SECONDS: Final = 1.0
_READ_ROUTE: Final = (Action.PUB, Action.SUB, Action.GET)
# Producers ask for the route of the first to create topics, and for those of the others to reply.
_AUTO_CREATE_TOPIC: Final = "TBW102"
_REPLY_SUFFIX: Final = "_REPLY_TOPIC"


class RequestAccess:
    """Admits requests with a valid signature of a known user, as far as the user's rules allow."""

    def __init__(self, directory: Directory, cluster: str, settings: ProxyAccessSettings) -> None:
        """`cluster`: the cluster whose rights count for requests that name no topic or group."""
        self._directory = directory
        self._needs = RequestNeeds(cluster)
        self._checks_rights = settings.authorization_enabled
        self._without_signature = settings.authentication_whitelist_names
        self._without_rights = settings.authorization_whitelist_names
        self._refused = RepeatedEvent(_LOG_SECONDS)

    async def check(self, client: Connection, code: int, request: RemotingCommand) -> None:
        """Raise CommandError (NO_PERMISSION) unless the request's user may make it from this address.

        Raises ClientError if no broker tells the user, BodyError for an unreadable body.
        """
        user = await self._authenticated(client, code, request)
        if not self._checks_rights or str(code) in self._without_rights or (user and user.is_super):
            return
        name = "" if user is None else user.name
        host = client.remote_address[0]
        acl = None if user is None else await self._directory.acl(name)
        for need in self._needs_of(code, request):
            decision = None if acl is None else acl.decide(need.resource, need.actions, address_of(host))
            if decision is not Decision.ALLOW:
                detail = "no matched policies." if decision is None else "the decision is deny."
                wanted = " or ".join(need.actions)
                problem = f"User:{name} has no permission to access {need.resource} from {host} ({wanted})"
                self._refuse(client, code, name, f"{problem}, {detail}")

    def _needs_of(self, code: int, request: RemotingCommand) -> list[Need]:
        if code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return self._needs.of(request)
        topic = request.ext_fields.get("topic", "")
        if topic == _AUTO_CREATE_TOPIC or topic.endswith(_REPLY_SUFFIX):
            return []
        return [topic_need(topic, _READ_ROUTE)]

    async def _authenticated(self, client: Connection, code: int, request: RemotingCommand) -> User | None:
        """Return the user that signed the request; None only for a code of the white list."""
        name = request.ext_fields.get(ACCESS_KEY, "")
        exempt = str(code) in self._without_signature
        try:
            user = await self._directory.user(name) if name else None
        except ClientError:
            if exempt:
                return None
            raise
        problem = _problem(name, user, request)
        if not problem:
            return user
        if not exempt:
            self._refuse(client, code, name, problem)
        return None

    def _refuse(self, client: Connection, code: int, name: str, problem: str) -> None:
        """Log and raise the refusal."""
        if count := self._refused.occurred():
            log.warning(
                "remoting access denied user=%s code=%d peer=%s refused=%d cause=%s",
                shown(name),
                code,
                client.peer,
                count,
                shown(problem),
            )
        raise CommandError(ResponseCode.NO_PERMISSION, problem)


def _problem(name: str, user: User | None, request: RemotingCommand) -> str:
    """Return why a request is not by its user; an empty text if it is."""
    if not name:
        return "username cannot be null. The request has no access keys: set the client's credentials"
    if user is None:
        return f"User:{name:.100} is not found."
    if not user.is_enabled:
        return f"User:{name} is disabled."
    fields = request.ext_fields
    expected = RequestSigner(user.name, user.password).signature(fields, request.body)
    if not hmac.compare_digest(expected.encode(), fields.get(SIGNATURE, "").encode()):
        return "check signature failed."
    return ""
