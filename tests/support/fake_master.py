"""A master in memory, as a replica's client of requests sees it."""

from __future__ import annotations

from collections.abc import Callable

from rmq_remoting.bodies.group import SubscriptionGroupConfig
from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.client import RemotingClient
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import ConnectError
from rmq_remoting.framing import encode_frame
from tests.support.frames import decode_all
from tests.support.peers import Peer

ADDRESS = "10.0.0.1:10911"
Answer = bytes | Callable[[], bytes]


class FakeMaster(RemotingClient):
    """Answers by request code, as frames; must be made on a running loop.

    Commits (15) are collected, and refused if `refusal` is set, or for a group in `unknown_groups` until it
    is created (200). A master of this version has a `metadata_version`; Apache's has none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[int, Answer] = {}
        self.log_end = 0
        self.metadata_version = ""
        self.refusal = ""
        self.unknown_groups: set[str] = set()
        self.is_away = False
        self.asked: list[int] = []
        self.commits: list[tuple[str, str, int, int]] = []
        self._connection = Peer().connection

    def count(self, code: int) -> int:
        """Return how often a request was sent."""
        return self.asked.count(code)

    async def connect(self, address: str) -> Connection:
        if self.is_away:
            raise ConnectError(f"cannot connect to {address}: refused")
        return self._connection

    async def request(
        self, address: str, command: RemotingCommand, timeout_seconds: float
    ) -> RemotingCommand:
        await self.connect(address)
        (received,) = decode_all(encode_frame(command))
        self.asked.append(received.code)
        (response,) = decode_all(encode_frame(self._answer(received)))
        return response

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            return self._commit(request)
        if request.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
            self.unknown_groups.discard(SubscriptionGroupConfig.decode(request.body).group_name)
            return request.response(ResponseCode.SUCCESS)
        if request.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            figures = {"commitLogMinOffset": "0", "commitLogMaxOffset": str(self.log_end)}
            if self.metadata_version:
                figures["metadataVersion"] = self.metadata_version
            return request.response(ResponseCode.SUCCESS, body=KVTable(table=figures).encode())
        answer = self.answers.get(request.code)
        if answer is None:
            return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported")
        body = answer if isinstance(answer, bytes) else answer()
        return request.response(ResponseCode.SUCCESS, body=body)

    def _commit(self, request: RemotingCommand) -> RemotingCommand:
        if self.refusal:
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, self.refusal)
        fields = request.ext_fields
        if fields["consumerGroup"] in self.unknown_groups:
            return request.response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no such group")
        self.commits.append(
            (fields["consumerGroup"], fields["topic"], int(fields["queueId"]), int(fields["commitOffset"]))
        )
        return request.response(ResponseCode.SUCCESS)
