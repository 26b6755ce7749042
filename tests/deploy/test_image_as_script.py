"""The container file executed without a container: built in a clean folder, both daemons started.

The paths of the image are below a folder. If the tests run as root, the daemons run as the image's user,
which may write only to the volume.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.tools import DEPLOY, ROOT
from tests.support.containerfile import Stage, parse
from tests.support.ports import LOOPBACK, free_broker_port, free_port
from tests.support.probe import has_broker
from tests.support.processes import Finished, ServerProcess, run_command
from tests.support.requirements import built_or_skip
from tests.support.toolchain import BuildFailed
from tests.support.waiting import until

# Downloads the packages, and compiles the hot path.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

_BUILD_TIMEOUT_SECONDS = 500
_READY_SECONDS = 30.0
_POLL_SECONDS = 0.05
_QUIET = ["--set", f"bindAddress={LOOPBACK}", "--set", "metricsExporterType=DISABLE"]


@dataclass(frozen=True, slots=True)
class Image:
    """The result of the container file, with `root` in place of the image's /."""

    root: Path
    stage: Stage
    user: tuple[str, ...]

    @property
    def home(self) -> Path:
        return self.root / self.stage.last("VOLUME").text.lstrip("/")

    def environment(self) -> Mapping[str, str]:
        """The image's environment with local paths; of this process only the system's part of PATH."""
        base = {"PATH": os.defpath}
        for name, value in self.stage.environment().items():
            text = re.sub(r"(?<![^:])/(opt|var)/", rf"{self.root}/\1/", value)
            base[name] = text.replace("$PATH", base["PATH"])
        return base

    def command(self, words: Sequence[str]) -> list[str]:
        """A command as the image's user would run it, its program looked up in the image's PATH."""
        program = shutil.which(words[0], path=self.environment()["PATH"])
        assert program is not None, f"the image has no {words[0]}"
        return [*self.user, "env", program, *words[1:]]

    async def run(self, *words: str) -> Finished:
        return await run_command(
            self.command(words), timeout_s=60, cwd=self.home, environment=self.environment()
        )

    def start(self, words: Sequence[str], log: Path) -> ServerProcess:
        return ServerProcess(self.command(words), log_path=log, environment=self.environment())


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    # Not pytest's folder, which other users cannot read.
    root = Path(tempfile.mkdtemp(prefix="image-"))
    try:
        root.chmod(0o755)
        build, final = parse(DEPLOY / "Containerfile")
        python, user = _python_and_user(final)
        built_or_skip(lambda: _build(build, root, python))
        image = Image(root, final, user)
        image.home.mkdir(parents=True)
        if user:
            os.chown(image.home, *map(int, final.last("USER").text.split(":")))
        yield image
    finally:
        shutil.rmtree(root)


def _python_and_user(stage: Stage) -> tuple[Path, tuple[str, ...]]:
    """Return an interpreter, and the command prefix that switches to USER.

    The interpreter is one that USER can execute, which rules out root's home. Without one, or if the tests do
    not run as root, the image's commands run as the user of the tests.
    """
    own = Path(sys.base_prefix) / "bin" / "python3"
    if os.geteuid() == 0 and shutil.which("setpriv") is not None:
        user, _, group = stage.last("USER").text.partition(":")
        become = ("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs")
        for python in (own, Path("/usr/bin/python3")):
            # `env`, because setpriv itself still has root's permissions when it starts the program.
            usable = [*become, "env", str(python), "-c", "import ensurepip, enum; enum.StrEnum"]
            if subprocess.run(usable, capture_output=True, check=False, cwd="/").returncode == 0:
                return python, become
    return own, ()


def _build(stage: Stage, root: Path, python: Path) -> None:
    """Run COPY and RUN in an empty folder. Raises BuildFailed."""
    source = root / stage.last("WORKDIR").text.lstrip("/")
    for copy in stage.copies():
        for name in copy.sources:
            target = source / copy.target.rstrip("/")
            target = target / Path(name).name if copy.target.endswith("/") else target
            target.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, target)
    (run,) = stage.all("RUN")
    script = re.sub(r"(?<=\s)/(?=src|opt)", f"{root}/", run.text)
    environment = {**os.environ, "PYTHON": str(python)}
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=source,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise BuildFailed(f"{script} ended with {done.returncode}:\n{done.stdout[-6000:]}")
    shutil.rmtree(source)  # the image has only installed packages


async def _ready(daemon: ServerProcess) -> None:
    def says_so() -> bool:
        assert daemon.exit_code is None, daemon.log_tail()
        return daemon.says_ready

    await until(says_so, _READY_SECONDS)


async def _registered(namesrv: str, broker: str) -> None:
    """Wait for the registration: a broker without a reachable name server is ready, and retries."""
    async with asyncio.timeout(_READY_SECONDS):
        while not await has_broker(namesrv, broker):  # noqa: ASYNC110  # another process registers
            await asyncio.sleep(_POLL_SECONDS)


async def test_both_daemons_serve_and_stop(image: Image, tmp_path: Path) -> None:
    namesrv_port, broker_port = free_port(), free_broker_port()
    namesrv = image.start(["rmq-namesrv", "--port", str(namesrv_port), *_QUIET], tmp_path / "namesrv.out")
    broker: ServerProcess | None = None
    try:
        await _ready(namesrv)
        # By name, as in the compose file.
        settings = ["--set", "brokerIP1=localhost", "--set", f"listenPort={broker_port}"]
        settings += ["--set", "diskSpaceWarningLevelRatio=99", "--set", "diskSpaceCleanForciblyRatio=98"]
        command = [*image.stage.last("CMD").exec_form(), "-n", f"{LOOPBACK}:{namesrv_port}"]
        broker = image.start([*command, *_QUIET, *settings], tmp_path / "broker.out")
        await _ready(broker)
        await _registered(f"{LOOPBACK}:{namesrv_port}", f"localhost:{broker_port}")
        _, health = image.stage.health_check()
        for role, port in (("namesrv", namesrv_port), ("broker", broker_port)):
            healthy = await image.run(*health, role, f"{LOOPBACK}:{port}")
            assert healthy.exit_code == 0, healthy
        example = (ROOT / "examples" / "quickstart_blocking.py").read_text()
        passed = await image.run("python", "-c", example, f"{LOOPBACK}:{namesrv_port}")
        assert passed.exit_code == 0, passed
        assert "hello without a loop" in passed.stdout
        assert (image.home / "store" / "commitlog").is_dir()
        assert await broker.stop(timeout_s=40) == 0, broker.log_tail()
        assert not (image.home / "store" / "abort").exists(), "no graceful shutdown"
        assert await namesrv.stop(timeout_s=40) == 0, namesrv.log_tail()
        sick = await image.run(*health, "broker", f"{LOOPBACK}:{broker_port}")
        assert sick.exit_code == 1, sick
        verified = await image.run("rmq-store", "verify", str(image.home / "store"))
        assert verified.exit_code == 0, verified
    finally:
        for daemon in (broker, namesrv):
            if daemon is not None:
                daemon.kill()


async def test_the_image_has_only_the_needed_packages(image: Image) -> None:
    listed = await image.run(
        "python", "-c", "import importlib.metadata as m; print(*sorted(d.name for d in m.distributions()))"
    )
    assert listed.exit_code == 0, listed
    names = set(listed.stdout.split())
    assert {"rmq", "crcmod", "structlog", "uvloop"} <= names
    assert not names & {"pip", "pyspark", "pyarrow", "numpy", "pytest"}


async def test_its_user_may_write_only_to_the_volume(image: Image) -> None:
    if not image.user:
        pytest.skip("only root can become the image's user, and only where it reaches a Python")
    for folder, code in ((image.root / "opt" / "rmq" / "bin", 1), (image.home, 0)):
        touched = await run_command(
            [*image.user, "env", "touch", str(folder / "x")], timeout_s=20, environment=image.environment()
        )
        assert touched.exit_code == code, touched


async def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "somebody-elses"
    other.mkdir()
    (other / "file").touch()
    script = str(DEPLOY / "install.sh")
    refused = await run_command(["sh", script, str(ROOT), str(other)], timeout_s=60)
    assert refused.exit_code == 1
    assert "holds something else" in refused.stderr
    assert (other / "file").exists()
