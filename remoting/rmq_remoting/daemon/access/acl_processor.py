"""Administration of access control lists: codes 3006 to 3010."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...answers import Result
from ...bodies.access_control import AclInfo
from ...codes import ResponseCode
from ...headers.access_control import (
    CreateAclRequestHeader,
    DeleteAclRequestHeader,
    GetAclRequestHeader,
    ListAclsRequestHeader,
)
from ..deferred_answers import Persist, answer_when_persisted
from .acls import AclTable
from .policies import Resource, policy_type_of, user_of
from .refusal import PolicyProblem
from .users import UserTable

if TYPE_CHECKING:
    from ...command import RemotingCommand
    from ...connection import Connection


class AclAdminProcessor:
    """Creates, changes, deletes and shows the rules of users."""

    def __init__(self, users: UserTable, acls: AclTable, save: Persist) -> None:
        self._users = users
        self._acls = acls
        self._save = save

    def set(self, connection: Connection, request: RemotingCommand) -> Result:
        """3006 and 3007: add rules; each replaces an older one for the same resource."""
        header = CreateAclRequestHeader.decode(request.ext_fields)
        info = AclInfo.decode_request(request.body)
        # As in Apache's broker, the subject of the body counts before that of the header.
        self._acls.add(self._known_user(info.subject or header.subject), info)
        return self._persisted(request)

    def delete(self, connection: Connection, request: RemotingCommand) -> Result:
        """3008: delete the rule for a resource, or all rules of a user."""
        header = DeleteAclRequestHeader.decode(request.ext_fields)
        resource = Resource.parse(header.resource) if header.resource else None
        user = self._known_user(header.subject)
        self._acls.delete(user, policy_type_of(header.policy_type), resource)
        return self._persisted(request)

    def get(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """3009: the rules of one user; no body if there are none."""
        header = GetAclRequestHeader.decode(request.ext_fields)
        acl = self._acls.get(self._known_user(header.subject))
        return request.response(ResponseCode.SUCCESS, body=b"" if acl is None else acl.info().encode())

    def list(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """3010: the rules of all users that match the filters; no body if there are none."""
        header = ListAclsRequestHeader.decode(request.ext_fields)
        found = self._acls.matching(header.subject_filter or "", header.resource_filter or "")
        body = b"[%b]" % b",".join(info.encode() for info in found) if found else b""
        return request.response(ResponseCode.SUCCESS, body=body)

    def _known_user(self, subject: str | None) -> str:
        """Return the name of a subject that is a user. Raises PolicyProblem."""
        name = user_of(subject)
        if self._users.get(name) is None:
            raise PolicyProblem(f"The subject of User:{name:.100} is not exist.")
        return name

    def _persisted(self, request: RemotingCommand) -> Result:
        return answer_when_persisted(request.response(ResponseCode.SUCCESS), self._save)
