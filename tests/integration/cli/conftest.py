"""One name server and one broker for all tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.clusters import RunningCluster, cluster_in_a_thread
from tests.support.command_line import CommandLine

# The broker gives transactions up after one check.
_IMPATIENT = {"transactionTimeOut": 1, "transactionCheckInterval": 20, "transactionCheckMax": 1}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    folder = tmp_path_factory.mktemp("cli")
    topics = {"T": 2, "RMQ_SYS_TRACE_TOPIC": 1}
    with cluster_in_a_thread(folder, {"broker-a": topics}, **_IMPATIENT) as running:
        yield running


@pytest.fixture
def rmq(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """The command, with the addresses of the cluster in its environment."""
    return CommandLine(cluster.address, tmp_path_factory.mktemp("profiles") / "config.toml")
