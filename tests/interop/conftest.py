"""Fixtures of the tests with foreign programs: builds (or visible skips) and shared clusters.

Servers stop after the last test of this folder. Apache's broker takes a quarter of a core when it is idle.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from rmq_client.admin import Admin
from tests.interop.clusters import Apache, Cluster, Own, flawless_cluster
from tests.interop.foreign import JavaClient, JavaShell
from tests.support import toolchain
from tests.support.apache import apache_cluster
from tests.support.requirements import built_or_skip
from tests.support.toolchain import JavaProgram, NodeProgram

_TEST_TIMEOUT_SECONDS = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Apply time limits to tests without their fixtures: the first fixture may build for minutes."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TEST_TIMEOUT_SECONDS, func_only=True))


@pytest.fixture(scope="session")
def apache_program() -> JavaProgram:
    return built_or_skip(toolchain.apache_servers)


@pytest.fixture(scope="session")
def java_program() -> JavaProgram:
    return built_or_skip(toolchain.java_client)


@pytest.fixture(scope="session")
def go_program() -> Path:
    return built_or_skip(toolchain.go_client)


@pytest.fixture(scope="session")
def node_program() -> NodeProgram:
    return built_or_skip(toolchain.node_client)


@pytest.fixture(scope="package")
def apache(apache_program: JavaProgram) -> Iterator[Apache]:
    """Apache's name server and broker, shared by all tests; each test uses its own topics and groups."""
    # In a loop of its own: the servers are bound to no loop, and an asynchronous fixture would start again
    # for each loop of the tests.
    with asyncio.Runner() as runner:
        # As with our servers in these tests: the machine may be busy, and sends must not be refused for that.
        cluster = apache_cluster(apache_program, {"waitTimeMillsInSendQueue": "10000"})
        yield runner.run(cluster.__aenter__())
        runner.run(cluster.__aexit__(None, None, None))


@pytest.fixture(autouse=True)
def apache_is_alive(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail at once if one of Apache's servers died; otherwise all later tests would time out."""
    yield
    if "apache" in request.fixturenames:
        for server in request.getfixturevalue("apache"):
            ended = server.process.exit_code
            assert ended is None, f"Apache's {server.name} ended with {ended}; see {server.log_path}"


@pytest.fixture(scope="package")
def own() -> Iterator[Own]:
    """This project's name server and broker, shared by all tests.

    They must shut down gracefully, and log no error.
    """
    with flawless_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="package")
def own_java(java_program: JavaProgram, own: Own, tmp_path_factory: pytest.TempPathFactory) -> JavaClient:
    return JavaClient(java_program, own[0].address, tmp_path_factory.mktemp("java"), header="ROCKETMQ")


@pytest.fixture(scope="package")
def own_shell(own_java: JavaClient) -> Iterator[JavaShell]:
    with own_java.shell() as shell:
        yield shell


@pytest.fixture(scope="module")
def own_tool(
    java_program: JavaProgram, own: Own, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaShell]:
    """A JVM that uses JSON headers (POP's request codes do not fit binary ones), also for mqadmin.

    One per module, because an invalid command line of mqadmin ends it.
    """
    with JavaClient(java_program, own[0].address, tmp_path_factory.mktemp("java-json")).shell() as shell:
        yield shell


@pytest_asyncio.fixture
async def own_topic(own: Own, name: str) -> str:
    """A topic of this test with four queues on this project's broker."""
    return await _create_topic(own, name)


@pytest.fixture(params=[pytest.param("apache", marks=pytest.mark.java), "own"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each kind of cluster: Apache's and this project's."""
    servers: Cluster = request.getfixturevalue(request.param)
    return servers


@pytest_asyncio.fixture
async def topic(cluster: Cluster, name: str) -> str:
    """A topic of this test with four queues on the cluster."""
    return await _create_topic(cluster, name)


async def _create_topic(cluster: Cluster, name: str) -> str:
    async with Admin(cluster[0].address) as admin:
        await admin.create_topic(name, queues=4)
    return name


@pytest.fixture
def name() -> str:
    """A name for this test's topic and groups."""
    return "t" + uuid.uuid4().hex[:12]
