"""The pytest plugin of `rmq_testing` in projects of other people, and the broker as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rmq_client import Message
from rmq_client.blocking import Producer
from rmq_testing import BrokerProcess
from rmq_testing.__main__ import main
from rmq_testing.blocking import BrokerForTests

pytest_plugins = ["pytester"]

_SYNCHRONOUS = """
    from rmq_client import Message

    def test_blocking(rmq_blocking_broker, rmq_topic, rmq_blocking_producer):
        rmq_blocking_producer.send(Message(rmq_topic, b"1"))
        (message,) = rmq_blocking_broker.expect(rmq_topic)
        assert message.body == b"1"

    def test_another_test_has_another_topic(rmq_blocking_broker, rmq_topic, rmq_new_topic):
        assert rmq_blocking_broker.messages(rmq_topic) == []
        assert rmq_topic != rmq_new_topic(queues=1)
"""
_COROUTINES = """
    import pytest
    from rmq_client import Message, PushConsumer

    {mark}
    async def test_asyncio(rmq_broker, rmq_topic, rmq_group, rmq_producer{fixture}):
        got = []

        async def listener(messages):
            got.extend(message.body for message in messages)

        async with PushConsumer(
            rmq_broker.namesrv_address, group=rmq_group, topics=[rmq_topic], listener=listener,
            consume_from="first",
        ):
            await rmq_producer.send(Message(rmq_topic, b"1"))
            await rmq_broker.consumed(rmq_group)
        assert got == [b"1"]
"""
_ANYIO_BACKEND = """
    import pytest

    @pytest.fixture
    def anyio_backend():
        return "asyncio"
"""
# Without the other plugins of this project's tests, whose hooks belong to this session.
_PLUGINS = ("-p", "rmq_testing.plugin", "-p", "no:xdist", "-p", "no:timeout")
_ASYNCIO = ("-o", "asyncio_default_fixture_loop_scope=function")


def test_synchronous_tests_use_the_blocking_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(_SYNCHRONOUS)
    pytester.runpytest_inprocess(*_PLUGINS, "-p", "no:asyncio").assert_outcomes(passed=2)


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_coroutines_run_with_pytest_asyncio(pytester: pytest.Pytester, mode: str) -> None:
    pytester.makepyfile(_COROUTINES.format(mark="@pytest.mark.asyncio", fixture=""))
    result = pytester.runpytest_inprocess(*_PLUGINS, *_ASYNCIO, f"--asyncio-mode={mode}")
    result.assert_outcomes(passed=1)


def test_coroutines_run_with_anyio(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(_ANYIO_BACKEND)
    pytester.makepyfile(_COROUTINES.format(mark="@pytest.mark.anyio", fixture=", anyio_backend"))
    pytester.runpytest_inprocess(*_PLUGINS, *_ASYNCIO).assert_outcomes(passed=1)


def test_settings_are_those_of_the_project(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def rmq_settings():
            return {"brokerName": "mine"}
    """)
    pytester.makepyfile("""
        from rmq_client.blocking import Admin

        def test_name(rmq_namesrv):
            with Admin(rmq_namesrv) as admin:
                assert list(admin.cluster_info().brokers) == ["mine"]
    """)
    pytester.runpytest_inprocess(*_PLUGINS, *_ASYNCIO).assert_outcomes(passed=1)


def test_a_failure_is_shown_at_the_line_of_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_nothing(rmq_blocking_broker, rmq_topic):
            rmq_blocking_broker.publish("other", "42")
            rmq_blocking_broker.expect(rmq_topic, timeout_seconds=0)
    """)
    result = pytester.runpytest_inprocess(*_PLUGINS, *_ASYNCIO)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            ">*rmq_blocking_broker.expect(rmq_topic, timeout_seconds=0)",
            "E*ExpectationFailed: expected 1 message in topic 'topic-*' within 0 s, got 0",
            "E*in topic 'other': 1 message, the latest queue 0 offset 0 body=b'42'",
        ]
    )


def test_the_plugin_imports_no_broker_before_its_first_use() -> None:
    script = "import rmq_testing.plugin, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not [name for name in loaded if name.split(".")[0] in ("rmq_broker", "rmq_client", "rmq_remoting")]


@pytest.mark.long
def test_each_worker_of_xdist_has_its_own_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_mine_alone(rmq_blocking_broker, rmq_topic, number):
            rmq_blocking_broker.publish(rmq_topic, str(number))
            (message,) = rmq_blocking_broker.expect(rmq_topic)
            assert message.body == str(number).encode()
    """)
    pytester.runpytest_subprocess("-p", "rmq_testing.plugin", "-n", "2").assert_outcomes(passed=8)


def test_a_killed_broker_process_keeps_its_messages(tmp_path: Path) -> None:
    with BrokerProcess(folder=tmp_path) as broker:
        with Producer(broker.namesrv_address, group="p") as producer:
            producer.send(Message("orders", b"1"))
        broker.kill()
        assert not broker.is_running
    with BrokerForTests(folder=tmp_path) as same:
        assert [message.body for message in same.messages("orders")] == [b"1"]


@pytest.mark.long
def test_a_broker_process_is_started_again_on_its_ports(tmp_path: Path) -> None:
    with BrokerProcess(folder=tmp_path) as broker:
        with pytest.raises(RuntimeError, match="runs already"):
            broker.start()
        broker.kill()
        broker.start()
        with Producer(broker.namesrv_address, group="p") as producer:
            producer.send(Message("orders", b"1"))
        broker.stop()
        assert not broker.is_running


def test_a_broker_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    broker = BrokerProcess(folder=tmp_path, settings={"brokerRole": "MASTER"})
    with pytest.raises(RuntimeError, match=r"exit code 2:\n(.|\n)*brokerRole"):
        broker.start()


def test_a_command_gets_the_addresses_and_gives_its_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    connect = (
        "import os, socket, sys\n"
        "for name in ('NAMESRV_ADDR', 'RMQ_BROKER_ADDR'):\n"
        "    host, _, port = os.environ[name].partition(':')\n"
        "    socket.create_connection((host, int(port))).close()\n"
        "    print(name, 'answers')\n"
        "sys.exit(7)\n"
    )
    topics = ("--topic", "orders:3", "--topic", "sent", "--set", "brokerName=mine")
    assert main([*topics, "--", sys.executable, "-c", connect]) == 7
    assert capfd.readouterr() == ("NAMESRV_ADDR answers\nRMQ_BROKER_ADDR answers\n", "")


def test_the_signal_that_ends_a_command_becomes_its_exit_code() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main(["--", "sh", "-c", "kill -KILL $$"]) == 128 + signal.SIGKILL
    # A signal to the program is passed on to the command.
    assert main(["--", "sh", "-c", "kill -TERM $PPID; exec sleep 60"]) == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_another_thread_gets_is_passed_on() -> None:
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)
    other.start()
    program = (
        "import os, signal, time\n"
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(20)\n"
    )
    # The system gives it to a thread that does not block it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        assert main(["--", sys.executable, "-c", program]) == 128 + signal.SIGTERM
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        ended.set()
        other.join()


def test_a_command_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--", "no-such-command"]) == 127
    assert capsys.readouterr().err == (
        "rmq_testing: no-such-command cannot be run: No such file or directory\n"
    )


@pytest.mark.parametrize("option", [("--topic", ":4"), ("--topic", "orders:0"), ("--set", "brokerName")])
def test_wrong_options_are_refused(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*option, "--", "true"])
    assert f"{option[1]!r} is not of the form" in capsys.readouterr().err
