"""The entry point of the command line."""

from __future__ import annotations

import subprocess
import sys


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_without_its_packages_a_sentence_says_what_to_install() -> None:
    ended = _run("import sys; sys.modules['typer'] = None; from rmq_cli.__main__ import main; main()")
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert ended.stderr == (
        "rmq: the package typer is missing: install the extra `cli`, with pip install 'rmq[cli]'\n"
    )


def test_a_shell_completes_commands() -> None:
    ended = _run(
        "import os, sys\n"
        "os.environ.update(_RMQ_COMPLETE='complete_bash', COMP_WORDS='rmq to', COMP_CWORD='1')\n"
        "sys.argv = ['rmq']\n"
        "from rmq_cli.__main__ import main\n"
        "main()"
    )
    assert ended.stdout.split() == ["topic"], ended.stderr
