"""A name server and its broker, of this project or Apache's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.support.apache import ApacheBroker, ApacheNamesrv
from tests.support.own_servers import OwnBroker, OwnNamesrv, own_cluster

Own = tuple[OwnNamesrv, OwnBroker]
Apache = tuple[ApacheNamesrv, ApacheBroker]
Cluster = Apache | Own


@contextmanager
def flawless_cluster(
    settings: Mapping[str, str] | None = None, namesrv_settings: Mapping[str, str] | None = None
) -> Iterator[Own]:
    """This project's name server and broker, for fixtures that many tests share.

    They must shut down gracefully, and log no error. `settings` are the broker's.
    """
    # In a loop of its own: the servers are bound to none, and an asynchronous fixture would start them again
    # for each loop of the tests.
    with asyncio.Runner() as runner:
        cluster = own_cluster(settings, namesrv_settings)
        namesrv, broker = runner.run(cluster.__aenter__())
        try:
            yield namesrv, broker
            for server in (broker, namesrv):
                runner.run(server.stop())
                assert not server.logged_errors(), "\n".join(server.logged_errors())
        finally:
            runner.run(cluster.__aexit__(None, None, None))
