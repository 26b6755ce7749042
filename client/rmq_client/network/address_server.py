"""The address server: a web page that lists the addresses of the name servers.

Source of the rules: Apache RocketMQ 5.3.3, DefaultTopAddressing and MQClientInstance.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ..errors import NameServerUnreachable, UsageError
from ..settings import is_address_server, name_server_list

REFRESH_SECONDS: Final = 120.0

_TIMEOUT_SECONDS: Final = 3.0
_MAX_BYTES: Final = 64 * 1024


class AddressServer:
    """Reads `url` (http or https). The page is one line: `host:port;host:port`."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def addresses(self) -> tuple[str, ...]:
        """Return the current name servers. Raises NameServerUnreachable."""
        try:
            text = await asyncio.to_thread(self._get)
        except (OSError, ValueError) as error:
            raise self._error(str(error) or type(error).__name__) from error
        line = text.strip().split("\n", 1)[0].strip()
        try:
            addresses = name_server_list(line)
        except UsageError as error:
            raise self._error(f"its answer {line[:200]!r} is invalid: {error}") from error
        if is_address_server(addresses[0]):
            raise self._error(f"its answer {line[:200]!r} is another address server")
        return addresses

    def _error(self, problem: str) -> NameServerUnreachable:
        return NameServerUnreachable(f"address server {self.url} returned no name servers: {problem}")

    def _get(self) -> str:
        """Return the page. Raises OSError, ValueError."""
        # Slow to import, and most clients have the addresses of their name servers.
        import http.client  # noqa: PLC0415
        import urllib.request  # noqa: PLC0415

        # As Apache's client does: the page is in the local network, which proxies of the environment do not
        # serve.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(self.url, timeout=_TIMEOUT_SECONDS) as answer:
                body: bytes = answer.read(_MAX_BYTES)
        except http.client.HTTPException as error:
            raise OSError(str(error) or type(error).__name__) from error
        return body.decode()
