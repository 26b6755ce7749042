"""The address server: a page of the web that tells the addresses of the name servers.

Source of the rules: Apache RocketMQ 5.3.3, DefaultTopAddressing and MQClientInstance.
"""

from __future__ import annotations

import asyncio
import http.client
import urllib.request
from typing import Final

from ..errors import NameServerUnreachable, UsageError
from ..settings import is_address_server, name_server_list

REFRESH_SECONDS: Final = 120.0

_TIMEOUT_SECONDS: Final = 3.0
_MAX_BYTES: Final = 64 * 1024


class AddressServer:
    """Asks for `url` (http or https). Its answer is a line: `host:port;host:port`."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def addresses(self) -> tuple[str, ...]:
        """The name servers of now. Raises NameServerUnreachable."""
        try:
            text = await asyncio.to_thread(self._get)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._error(str(error) or type(error).__name__) from error
        line = text.strip().split("\n", 1)[0].strip()
        try:
            addresses = name_server_list(line)
        except UsageError as error:
            raise self._error(f"it says {line[:200]!r}: {error}") from error
        if is_address_server(addresses[0]):
            raise self._error(f"it tells of another one, {line[:200]!r}")
        return addresses

    def _error(self, problem: str) -> NameServerUnreachable:
        return NameServerUnreachable(
            f"the address server {self.url} does not tell where the name servers are: {problem}"
        )

    def _get(self) -> str:
        # As Apache's client: it is in the own network, where proxies of the environment do not lead.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url, timeout=_TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read(_MAX_BYTES)
        return body.decode()
