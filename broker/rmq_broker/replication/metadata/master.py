"""Requests of a replica to its master."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.codes import RequestCode, ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.errors import RequestTimeout
from rmq_remoting.headers.offsets import UpdateConsumerOffsetRequestHeader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq_remoting.bodies.group import SubscriptionGroupConfig
    from rmq_remoting.client import RemotingClient

# Apache's slaves wait for 3 s; a table of many groups may take longer.
_TIMEOUT_SECONDS: Final = 10.0
# Figures of request 28: both brokers have the first two.
_LOG_BEGIN: Final = "commitLogMinOffset"
_LOG_END: Final = "commitLogMaxOffset"
_METADATA_VERSION: Final = "metadataVersion"
_ADVICE: Final = (
    "; the master checks users: set innerClientAuthenticationCredentials to the keys of a user with the "
    "action GET on the cluster, and UPDATE on topics and groups"
)


class MetadataError(Exception):
    """The master refused a request, with a code, or its answer cannot be used."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class MasterState(NamedTuple):
    """The extent of the master's log, and a text that differs after each change of its metadata.

    The text is empty for Apache's broker.
    """

    log_begin: int
    log_end: int
    metadata_version: str


class Master:
    """The master at one address."""

    def __init__(
        self, client: RemotingClient, address: str, timeout_seconds: float = _TIMEOUT_SECONDS
    ) -> None:
        self.address = address
        self._client = client
        self._timeout_seconds = timeout_seconds

    async def connect(self) -> None:
        """Connect to the master, unless there is a connection. Raises RequestError."""
        await self._client.connect(self.address)

    async def ask(self, code: RequestCode) -> bytes:
        """Return the body of the answer to a request without fields. Raises RequestError, MetadataError."""
        body = (await self.send(RemotingCommand.request(code))).body
        if not body:
            raise MetadataError(f"request {int(code)} was answered without a body")
        return body

    async def state(self) -> MasterState:
        """Return the master's state. Raises RequestError, MetadataError, BodyError."""
        figures = KVTable.decode(await self.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).table
        begin, end = (_log_offset(figures, name) for name in (_LOG_BEGIN, _LOG_END))
        return MasterState(begin, end, figures.get(_METADATA_VERSION, ""))

    async def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit a group's offset, as its consumers do. Raises RequestError, MetadataError."""
        header = UpdateConsumerOffsetRequestHeader(
            commit_offset=offset, consumer_group=group, queue_id=queue_id, topic=topic
        )
        await self.send(RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header.encode()))

    async def create_group(self, config: SubscriptionGroupConfig) -> None:
        """Create a consumer group. Raises RequestError, MetadataError."""
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self.send(RemotingCommand.request(code, body=config.encode()))

    async def send(self, request: RemotingCommand) -> RemotingCommand:
        """Return the answer to a request. Raises RequestError, MetadataError if it is refused."""
        try:
            response = await self._client.request(self.address, request, self._timeout_seconds)
        except RequestTimeout:
            # The connection may be dead without notice, so the retry opens another one.
            self._client.close_address(self.address)
            raise
        if response.code != ResponseCode.SUCCESS:
            advice = _ADVICE if response.code == ResponseCode.NO_PERMISSION else ""
            raise MetadataError(
                f"request {request.code} refused, code {response.code}: {response.remark}{advice}",
                response.code,
            )
        return response


def _log_offset(figures: Mapping[str, str], name: str) -> int:
    text = figures.get(name, "")
    if not (text.isascii() and text.isdigit()):
        raise MetadataError(f"figure {name} must be a number, not {text!r:.40}")
    return int(text)
