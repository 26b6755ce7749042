"""Key-value configuration: PUT (100), GET (101), DELETE (102), GET_KVLIST_BY_NAMESPACE (219)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from rmq_remoting.answers import Answer, Result
from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.codes import ResponseCode
from rmq_remoting.command import RemotingCommand
from rmq_remoting.connection import Connection
from rmq_remoting.errors import CommandError
from rmq_remoting.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)

from ..kv_config import KvConfig


class KvProcessor:
    """Reads and changes the tables; a change is answered once it is durable."""

    def __init__(self, kv_config: KvConfig) -> None:
        self._kv_config = kv_config

    def put_kv_config(self, _: Connection, request: RemotingCommand) -> Result:
        """100."""
        header = PutKVConfigRequestHeader.decode(request.ext_fields)
        return _saved(request, self._kv_config.put(header.namespace, header.key, header.value))

    def delete_kv_config(self, _: Connection, request: RemotingCommand) -> Result:
        """102. Idempotent: deleting a missing key succeeds."""
        header = DeleteKVConfigRequestHeader.decode(request.ext_fields)
        return _saved(request, self._kv_config.delete(header.namespace, header.key))

    def get_kv_config(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """101."""
        header = GetKVConfigRequestHeader.decode(request.ext_fields)
        value = self._kv_config.get(header.namespace, header.key)
        if value is None:
            raise CommandError(
                ResponseCode.QUERY_NOT_FOUND, f"namespace {header.namespace} has no key {header.key}"
            )
        answer = GetKVConfigResponseHeader(value=value)
        return request.response(ResponseCode.SUCCESS, ext_fields=answer.encode())

    def get_kv_list_by_namespace(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        """219. The body is a KVTable."""
        header = GetKVListByNamespaceRequestHeader.decode(request.ext_fields)
        table = self._kv_config.table(header.namespace)
        if table is None:
            raise CommandError(ResponseCode.QUERY_NOT_FOUND, f"there is no namespace {header.namespace}")
        return request.response(ResponseCode.SUCCESS, body=KVTable(table=dict(table)).encode())


def _saved(request: RemotingCommand, change: Coroutine[Any, Any, None]) -> asyncio.Future[Answer]:
    async def answer() -> Answer:
        try:
            await change
        except OSError as error:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR,
                f"the change is in force but not persisted: {error}; the next restart will undo it",
            ) from error
        return request.response(ResponseCode.SUCCESS)

    return asyncio.get_running_loop().create_task(answer())
