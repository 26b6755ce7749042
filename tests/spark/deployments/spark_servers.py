"""Spark's servers as processes: a standalone cluster, and a Spark Connect server.

They are started by the scripts of the PySpark package, each in a folder of its own.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from pyspark_rocketmq.spark_versions import VERSION
from tests.support.jvm import QUICK
from tests.support.ports import LOOPBACK, free_port
from tests.support.processes import ServerProcess
from tests.support.waiting import until_in_thread

IS_SPARK_4_0: Final = VERSION.startswith("4.0.")
SPARK_HOME: Final = Path(pyspark.__file__).parent
_ROOT: Final = Path(__file__).resolve().parents[3]
_READY_SECONDS: Final = 150
_WORKERS: Final = 2
_WORKER_MEMORY: Final = "512m"
_QUICK_JVM: Final = " ".join(QUICK)


def environment() -> dict[str, str]:
    """The environment of Spark's scripts and programs, which makes Spark use this Python."""
    here = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **here,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_DAEMON_MEMORY": "768m",
        "SPARK_DAEMON_JAVA_OPTS": _QUICK_JVM,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(_ROOT),
    }


class _Servers:
    """Processes that are ended together."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._processes: list[ServerProcess] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def logs(self) -> str:
        """Return the end of each process's output."""
        return "\n".join(f"--- {one.log_path.name}\n{one.log_tail()}" for one in self._processes)

    def _start(self) -> None:
        raise NotImplementedError

    def _run(self, name: str, command: Sequence[str], more: Mapping[str, str] | None = None) -> ServerProcess:
        process = ServerProcess(
            command, log_path=self._home / f"{name}.log", environment={**environment(), **(more or {})}
        )
        self._processes.append(process)
        return process

    def _until_it_listens(self, port: int) -> None:
        until_in_thread(lambda: self._all_run() and _listens(port), _READY_SECONDS)

    def _all_run(self) -> bool:
        for process in self._processes:
            if process.exit_code is not None:
                raise RuntimeError(f"{process.command[1:3]} ended: {process.log_tail()}")
        return True

    def _kill(self) -> None:
        for process in reversed(self._processes):
            process.kill()


class StandaloneCluster(_Servers):
    """`with StandaloneCluster(folder) as cluster`: a master and two workers of one core each.

    The executors of each worker run below its folder in `worker_folders`.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._port = free_port()
        self.master = f"spark://{LOOPBACK}:{self._port}"
        self.worker_folders = [home / f"worker-{number}" for number in range(_WORKERS)]

    def settings(self) -> dict[str, str]:
        """Return settings for a session that uses both workers and waits for them."""
        return {
            "spark.cores.max": str(_WORKERS),
            "spark.driver.extraJavaOptions": _QUICK_JVM,
            "spark.executor.cores": "1",
            "spark.executor.memory": _WORKER_MEMORY,
            "spark.executor.extraJavaOptions": _QUICK_JVM,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{_READY_SECONDS}s",
            "spark.ui.enabled": "false",
        }

    def _start(self) -> None:
        script = str(SPARK_HOME / "bin" / "spark-class")
        here = ["--host", LOOPBACK, "--webui-port", "0"]
        master = [script, "org.apache.spark.deploy.master.Master", *here, "--port", str(self._port)]
        self._run("master", master)
        # A worker that finds no master retries only after many seconds.
        self._until_it_listens(self._port)
        size = ["--cores", "1", "--memory", _WORKER_MEMORY]
        for folder in self.worker_folders:
            worker = [script, "org.apache.spark.deploy.worker.Worker", *here, *size]
            self._run(folder.name, [*worker, "--work-dir", str(folder), self.master])


class ConnectServer(_Servers):
    """`with ConnectServer(folder) as server`: Spark Connect over local[2]; clients use `address`."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._port = free_port()
        self.address = f"sc://{LOOPBACK}:{self._port}"

    def settings(self) -> dict[str, str]:
        """Return no settings: the server has them."""
        return {}

    def _start(self) -> None:
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        settings = {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.local.dir": str(self._home / "local"),
            "spark.sql.warehouse.dir": str(self._home / "warehouse"),
            "spark.ui.enabled": "false",
        }
        if IS_SPARK_4_0:
            # PySpark 4.0 loses workers that it wants to reuse (SPARK-52642), and local mode repeats no task.
            settings["spark.python.worker.reuse"] = "false"
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--class", server, "--master", "local[2]"]
        command += ["--driver-java-options", f"{_QUICK_JVM} -Dderby.system.home={self._home}"]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        self._run("connect", command, {"SPARK_CONNECT_MODE": "0"})
        self._until_it_listens(self._port)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
