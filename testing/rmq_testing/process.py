"""A name server and a broker beside the test, in a process of their own that a test can kill."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from .arguments import folder_path, settings_by_key
from .ports import LOOPBACK, free_broker_port, free_port
from .settings import SMALL_BROKER

_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.01
_LOG_LINES: Final = 20


class BrokerProcess:
    """`rmq-broker --standalone` with small files, as a context manager.

    Slower to start than `BrokerForTests` (0.3 to 1.5 s), and without faults, time and expectations. In return
    it is a real process: `kill` is SIGKILL. All methods block.
    """

    def __init__(
        self, *, settings: Mapping[str, object] | None = None, folder: str | Path | None = None
    ) -> None:
        """Prepare the process. `settings`: the broker's, by Apache's keys.

        `folder` keeps the files; without it they are in a temporary directory that is removed at the end.
        """
        self._settings = settings_by_key(settings)
        given = folder_path(folder)
        self._is_temporary = given is None
        self._folder = given or Path(tempfile.mkdtemp(prefix="rmq-testing-"))
        self._namesrv_port, self._port = free_port(), free_broker_port()
        self._ready_file = self._folder / "ready.json"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def namesrv_address(self) -> str:
        """The address of the name server, which clients need."""
        return f"{LOOPBACK}:{self._namesrv_port}"

    @property
    def broker_address(self) -> str:
        """The address of the broker."""
        return f"{LOOPBACK}:{self._port}"

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process, also after `stop` or `kill` on the same files and ports. Raises RuntimeError."""
        if self.is_running:
            raise RuntimeError("the broker runs already")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)  # that of a killed process
        log_path = self._folder / "broker.log"
        with log_path.open("a") as log:
            self._process = subprocess.Popen(self._command(), stdout=subprocess.DEVNULL, stderr=log)
        while not self._ready_file.exists():
            if not self.is_running:
                tail = "".join(log_path.read_text(errors="replace").splitlines(keepends=True)[-_LOG_LINES:])
                raise RuntimeError(f"the broker ended with exit code {self._process.returncode}:\n{tail}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Shut the process down gracefully, if it runs."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End the process by SIGKILL. The files stay as they are."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._remove()

    def _command(self) -> Sequence[str]:
        settings = {
            **SMALL_BROKER,
            "listenPort": self._port,
            "storePathRootDir": self._folder / "store",
            **self._settings,
        }
        words = [f"--set={key}={value}" for key, value in settings.items()]
        standalone = ("--standalone", "--namesrv-port", str(self._namesrv_port))
        ready = ("--ready-file", str(self._ready_file))
        return [sys.executable, "-m", "rmq_broker", *standalone, *ready, *words]

    def _remove(self) -> None:
        if self._is_temporary:
            shutil.rmtree(self._folder, ignore_errors=True)
