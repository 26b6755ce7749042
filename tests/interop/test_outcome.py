from __future__ import annotations

import sys

import pytest

from tests.support.outcome import ForeignProgramFailed, Option, command_line, expected_body, outcome_of
from tests.support.processes import Finished, run_command


def finished(stdout: str, exit_code: int = 0) -> Finished:
    return Finished(("program",), exit_code, stdout, "", 0.1)


def test_options_become_arguments() -> None:
    flags: dict[str, Option] = {"topic": "T", "vip": True, "hold": False, "tag": None, "wait_s": 3}
    assert command_line(("send",), flags) == ["send", "--topic", "T", "--vip", "--wait-s", "3"]
    repeated: dict[str, Option] = {"property": {"a": 1, "b": "c"}}
    assert command_line((), repeated) == ["--property", "a=1", "--property", "b=c"]


def test_bodies_have_the_size_asked_for() -> None:
    assert expected_body(7, 12) == b"00000007:abc"
    assert len(expected_body(7, 5000)) == 5000


def test_outcome_gives_the_first_error() -> None:
    line = '{"event": "result", "ok": false, "errors": [{"index": 2, "code": 17}]}\n'
    outcome = outcome_of(finished(line))
    assert not outcome.ok
    assert outcome.error == {"index": 2, "code": 17}


@pytest.mark.parametrize(
    ("stdout", "exit_code"),
    [("", 0), ("panic!\n", 0), ('{"event": "started"}\n', 0), ('{"event": "result", "ok": true}\n', 1)],
)
def test_a_program_without_a_result_is_told_apart_from_one_that_was_refused(
    stdout: str, exit_code: int
) -> None:
    with pytest.raises(ForeignProgramFailed):
        outcome_of(finished(stdout, exit_code))


async def test_a_command_that_takes_too_long_is_killed_and_tells_what_it_printed() -> None:
    script = "import time; print('so far', flush=True); time.sleep(60)"
    with pytest.raises(TimeoutError, match="so far"):
        await run_command([sys.executable, "-c", script], timeout_s=1)
