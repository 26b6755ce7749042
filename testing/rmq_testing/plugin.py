"""The pytest plugin: a broker for the session, and for each test a topic and a consumer group of its own.

The first test that uses a fixture of this module starts the broker. Nothing of the broker is imported before.
Under pytest-xdist each worker has a broker of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest

try:  # in its strict mode it runs only the async fixtures that are marked as its own
    from pytest_asyncio import fixture as _asyncio_fixture
except ImportError:
    _asyncio_fixture = pytest.fixture  # type: ignore[assignment]

if TYPE_CHECKING:
    import rmq_client.blocking
    import rmq_testing.blocking

    from .broker import BrokerForTests
    from .server import Server

_LONGEST_NAME: Final = 40
_numbers: Final = count(1)


@pytest.fixture(scope="session")
def rmq_settings() -> Mapping[str, object]:
    """Settings of the session's broker, by Apache's keys: override this fixture in `conftest.py`."""
    return {}


@pytest.fixture(scope="session")
def rmq_server(rmq_settings: Mapping[str, object]) -> Iterator[Server]:
    """The running name server and broker of the session; tests use `rmq_broker`."""
    from .server import Server  # noqa: PLC0415 (most sessions of a machine need no broker)

    server = Server(settings=rmq_settings)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def rmq_namesrv(rmq_server: Server) -> str:
    """The address of the session's name server."""
    return rmq_server.harness.namesrv_address


@pytest.fixture
def rmq_broker(rmq_server: Server) -> Iterator[BrokerForTests]:
    """The session's broker, for a test that is a coroutine. Faults end with the test."""
    from .broker import BrokerForTests  # noqa: PLC0415

    yield BrokerForTests.sharing(rmq_server)
    rmq_server.end_test()


@pytest.fixture
def rmq_blocking_broker(rmq_server: Server) -> Iterator[rmq_testing.blocking.BrokerForTests]:
    """The session's broker, for a test that is a plain function. Faults end with the test."""
    from .blocking import BrokerForTests  # noqa: PLC0415

    yield BrokerForTests.sharing(rmq_server)
    rmq_server.end_test()


@pytest.fixture
def rmq_new_topic(rmq_server: Server, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Creates further topics: `rmq_new_topic(queues=1)` returns the name."""

    def create(queues: int = 4) -> str:
        topic = _unique_name("topic", request)
        rmq_server.run(rmq_server.harness.create_topic(topic, queues))
        return topic

    return create


@pytest.fixture
def rmq_topic(rmq_new_topic: Callable[..., str]) -> str:
    """A new topic with four queues."""
    return rmq_new_topic()


@pytest.fixture
def rmq_group(request: pytest.FixtureRequest) -> str:
    """The name of a new consumer group."""
    return _unique_name("group", request)


@pytest.fixture
def rmq_producer(request: pytest.FixtureRequest) -> rmq_client.Producer:
    """A running producer of the SDK, on the loop of the test: that of pytest-asyncio, or of anyio."""
    is_anyio = "anyio_backend" in request.fixturenames
    producer: rmq_client.Producer = request.getfixturevalue(
        "_rmq_producer_of_anyio" if is_anyio else "_rmq_producer_of_asyncio"
    )
    return producer


@_asyncio_fixture
async def _rmq_producer_of_asyncio(
    rmq_namesrv: str, request: pytest.FixtureRequest
) -> AsyncIterator[rmq_client.Producer]:
    async with _new_producer(rmq_namesrv, request) as producer:
        yield producer


@pytest.fixture
async def _rmq_producer_of_anyio(
    rmq_namesrv: str, request: pytest.FixtureRequest
) -> AsyncIterator[rmq_client.Producer]:
    async with _new_producer(rmq_namesrv, request) as producer:
        yield producer


def _new_producer(namesrv: str, request: pytest.FixtureRequest) -> rmq_client.Producer:
    from rmq_client import Producer  # noqa: PLC0415

    return Producer(namesrv, group=_unique_name("producer", request))


@pytest.fixture
def rmq_blocking_producer(
    rmq_namesrv: str, request: pytest.FixtureRequest
) -> Iterator[rmq_client.blocking.Producer]:
    """A running producer of the SDK, for a test that is a plain function."""
    from rmq_client.blocking import Producer  # noqa: PLC0415

    with Producer(rmq_namesrv, group=_unique_name("producer", request)) as producer:
        yield producer


def _unique_name(kind: str, request: pytest.FixtureRequest) -> str:
    """Return a name that no other test of the session has, with the test's name in it for logs and errors."""
    test: Any = request.node
    readable = "".join(letter if letter.isalnum() else "-" for letter in test.name if letter.isascii())
    return f"{kind}-{next(_numbers)}-{readable[:_LONGEST_NAME].strip('-')}"
