"""The SDK where there is no fork, no uvloop and no Unix socket, as on Windows and macOS: simulated.

The unit tests of the SDK, the command line and the FastStream broker run there, and tests of the SDK with a
broker. (`make types` checks the same packages with the types of Windows and macOS.) The commands that need
Linux say so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

_ROOT = Path(__file__).resolve().parents[2]
_PLUGIN = "tests.support.other_platform"
_THERE = f"import sys\nsys.path.insert(0, {str(_ROOT)!r})\nimport {_PLUGIN} as there\n"
# The suite may share the machine with others.
_SECONDS = 900
_SDK_AND_ITS_USERS = ("rmq_client", "rmq_cli", "rmq_faststream")
_NEED_LINUX = {
    "rmq-namesrv": "rmq_namesrv",
    "rmq-broker": "rmq_broker",
    "rmq-proxy": "rmq_proxy",
    "rmq-store": "rmq_broker.store_tool",
}
_TESTS = {
    "units of the SDK": ["tests/unit/client"],
    "units of its users": ["tests/unit/cli", "tests/unit/faststream"],
    "with a broker": ["tests/integration/test_client_blocking.py"],
}


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _THERE + program],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def test_all_modules_can_be_imported() -> None:
    done = _run(
        "import asyncio, importlib, pkgutil\n"
        "there.become_other_platform()\n"
        f"for name in {_SDK_AND_ITS_USERS}:\n"
        "    package = importlib.import_module(name)\n"
        "    for one in pkgutil.walk_packages(package.__path__, name + '.'):\n"
        "        if not one.name.endswith('__main__'):\n"
        "            importlib.import_module(one.name)\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_rmq_testing_says_that_its_broker_needs_linux() -> None:
    done = _run(
        "import asyncio\n"
        "there.become_other_platform()\n"
        "import importlib, rmq_testing, rmq_testing.plugin\n"
        "def load_server():\n"
        "    importlib.import_module('rmq_testing.server')\n"
        "for load in (load_server, lambda: rmq_testing.BrokerForTests):\n"
        "    try:\n"
        "        load()\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("the broker needs Linux: run these tests in a container or in WSL") == 2


@pytest.mark.parametrize(
    ("platform", "cure"), [("win32", "Windows; run it in WSL or in a container"), ("darwin", "macOS; run it")]
)
def test_commands_that_need_linux_say_so_in_a_sentence(platform: str, cure: str) -> None:
    done = _run(
        "import asyncio, importlib\n"
        "there.become_other_platform()\n"
        f"sys.platform = {platform!r}\n"
        f"for name in {tuple(_NEED_LINUX.values())}:\n"
        "    assert importlib.import_module(name + '.__main__').main() == 1\n"
    )
    sentences = done.stderr.splitlines()
    assert (done.returncode, done.stdout, len(sentences)) == (0, "", len(_NEED_LINUX)), done.stderr
    for program, sentence in zip(_NEED_LINUX, sentences, strict=True):
        assert sentence.startswith(f"{program} runs on Linux only, and this is {cure}")


def test_these_commands_are_the_scripts_of_an_install() -> None:
    scripts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    elsewhere = {"rmq", "rmq-health"}
    assert {name: target for name, target in scripts.items() if name not in elsewhere} == {
        name: f"{package}.__main__:main" for name, package in _NEED_LINUX.items()
    }


@pytest.mark.timeout(_SECONDS)
@pytest.mark.parametrize("tests", _TESTS.values(), ids=_TESTS.keys())
def test_the_tests_of_the_sdk_pass(tests: list[str]) -> None:
    options = ["-q", "-p", _PLUGIN, "-p", "no:cacheprovider", "-p", "no:xdist"]
    # Options of the run that this test belongs to, such as `-n 2`, are not for the one that it starts.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
