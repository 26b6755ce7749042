"""Name servers: their settings and key-value entries, write permissions, and the order of topics."""

from __future__ import annotations

from collections.abc import Mapping

from rmq_remoting.bodies.kv import KVTable
from rmq_remoting.codes import RequestCode
from rmq_remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

from ..errors import NotFound, UsageError, readable
from .arguments import checked
from .base import AdminBase
from .property_lines import parse_lines, to_lines

# Holds `broker-a:4;broker-b:2` by ordered topic (Apache RocketMQ 5.3.3, NamesrvUtil).
ORDER_TOPICS = "ORDER_TOPIC_CONFIG"


class NameServerAdmin(AdminBase):
    """Administration of name servers. Each change goes to every name server."""

    @checked
    async def name_server_settings(self) -> dict[str, dict[str, str]]:
        """Return the settings of every name server by its address. Raises ClientError."""
        instance, about = self._running(), "settings of name servers"
        responses = await instance.run(
            instance.name_servers.ask_each(RequestCode.GET_NAMESRV_CONFIG, None, about)
        )
        return {
            address: parse_lines(response.body.decode("utf-8", "replace"))
            for address, response in responses.items()
        }

    @checked
    async def update_name_server_settings(self, settings: Mapping[str, str]) -> None:
        """Change settings of every name server, by Apache's keys. Raises ClientError."""
        if not settings:
            raise UsageError("settings is empty: name at least one setting, by Apache's key")
        instance, about = self._running(), "change of settings of name servers"
        body = to_lines(settings).encode()
        await instance.run(
            instance.name_servers.ask_each(RequestCode.UPDATE_NAMESRV_CONFIG, None, about, body)
        )

    @checked
    async def key_values(self, table: str) -> dict[str, str]:
        """Return the entries of a table of the name servers; none if there is no such table.

        Raises ClientError.
        """
        instance = self._running()
        header = GetKVListByNamespaceRequestHeader(namespace=table)
        try:
            found = await instance.run(
                instance.name_servers.ask(
                    RequestCode.GET_KVLIST_BY_NAMESPACE, header, f"table {table}", KVTable.decode
                )
            )
        except NotFound:
            return {}
        return dict(sorted(found.table.items()))

    @checked
    async def put_key_value(self, table: str, key: str, value: str) -> None:
        """Set one entry of a table of the name servers. Raises ClientError."""
        header = PutKVConfigRequestHeader(namespace=table, key=key, value=value)
        await self._tell_name_servers(RequestCode.PUT_KV_CONFIG, header, f"entry {key} of table {table}")

    @checked
    async def delete_key_value(self, table: str, key: str) -> None:
        """Delete one entry of a table of the name servers; a missing entry is no error.

        Raises ClientError.
        """
        header = DeleteKVConfigRequestHeader(namespace=table, key=key)
        await self._tell_name_servers(RequestCode.DELETE_KV_CONFIG, header, f"entry {key} of table {table}")

    @checked
    async def wipe_write_permission(self, broker_name: str) -> int:
        """Withdraw the write permission of a broker's topics; return how many topics were concerned.

        Producers stop sending to the broker within 30 s, consumers go on. In force until
        `add_write_permission`, or until the broker's topics change. Raises ClientError.
        """
        return await self._write_permission(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            WipeWritePermOfBrokerRequestHeader(broker_name=broker_name),
            broker_name,
        )

    @checked
    async def add_write_permission(self, broker_name: str) -> int:
        """Restore the write permission of a broker's topics; return how many topics were concerned.

        Raises ClientError.
        """
        return await self._write_permission(
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
            AddWritePermOfBrokerRequestHeader(broker_name=broker_name),
            broker_name,
        )

    async def _write_permission(
        self,
        code: RequestCode,
        header: WipeWritePermOfBrokerRequestHeader | AddWritePermOfBrokerRequestHeader,
        broker_name: str,
    ) -> int:
        await self._broker_known(broker_name)
        instance, about = self._running(), f"write permission of broker {broker_name}"
        responses = await instance.run(instance.name_servers.ask_each(code, header, about))
        counts = []
        for address, response in responses.items():
            with readable(address, about):
                if code == RequestCode.WIPE_WRITE_PERM_OF_BROKER:
                    fields = WipeWritePermOfBrokerResponseHeader.decode(response.ext_fields)
                    counts.append(fields.wipe_topic_count)
                else:
                    added = AddWritePermOfBrokerResponseHeader.decode(response.ext_fields)
                    counts.append(added.add_topic_count)
        return max(counts, default=0)

    async def _broker_known(self, broker_name: str) -> None:
        """Raise UsageError for a broker that the name servers do not know."""
        info = await self._cluster()
        if broker_name not in info.broker_addr_table:
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            raise UsageError(f"the name servers know no broker {broker_name}; they know: {known}")

    async def _tell_name_servers(
        self, code: RequestCode, header: PutKVConfigRequestHeader | DeleteKVConfigRequestHeader, about: str
    ) -> None:
        instance = self._running()
        await instance.run(instance.name_servers.ask_each(code, header, about))
