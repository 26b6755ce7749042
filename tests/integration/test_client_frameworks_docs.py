"""The programs and tests of docs/frameworks/ run as printed, with the address of a broker of this project."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from faststream.exceptions import NackMessage, RejectMessage
from faststream.specification import AsyncAPI

from rmq_faststream import RocketBroker, TestRocketBroker
from rmq_testing import blocking
from tests.support.code_blocks import How, python_blocks

pytest_plugins = ["pytester"]
# Programs import whole frameworks, which takes a while on a busy machine.
pytestmark = [pytest.mark.timeout(300), pytest.mark.thorough]

_ADDRESS: Final = "127.0.0.1:9876"
_SECONDS: Final = 60.0
_FIRST_LINE: Final = re.compile(r"# ([\w/]+\.py)\n")
# The transport of kombu that needs no server, in place of Redis. The folder is that of the programs.
_CELERY_BROKER: Final = '"redis://127.0.0.1:6379/0"'
_ACKS_LATE: Final = "app.conf.task_acks_late"
_FILE_TRANSPORT: Final = (
    'app.conf.broker_transport_options = {"data_folder_in": "queue", "data_folder_out": "queue"}'
)
_CELERY_REPLACEMENTS: Final = {
    _CELERY_BROKER: '"filesystem://"',
    _ACKS_LATE: f"{_FILE_TRANSPORT}\n{_ACKS_LATE}",
}
_DJANGO_FILES: Final = {
    "manage.py": """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
""",
    "project/__init__.py": "",
    "project/settings.py": f"""
SECRET_KEY = "of tests"
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = ["shop"]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "project.urls"
ROCKETMQ_NAME_SERVERS = "{_ADDRESS}"
USE_TZ = True
""",
    "project/urls.py": """
from django.urls import path
from shop import views
urlpatterns = [path("orders", views.place), path("orders/surely", views.place_surely)]
""",
    "shop/__init__.py": "",
    "shop/management/__init__.py": "",
    "shop/management/commands/__init__.py": "",
}


def _write(page: str, folder: Path, address: str, replaced: dict[str, str] | None = None) -> list[str]:
    """Write the blocks of a page into a folder, and return the names of their files."""
    names = []
    for block in python_blocks(How.ELSEWHERE)[f"docs/frameworks/{page}"]:
        name = _FIRST_LINE.match(block.text)
        assert name is not None, f"{block.name}: the first line must name a file"
        text = block.text.replace(_ADDRESS, address)
        for old, new in (replaced or {}).items():
            text = text.replace(old, new)
        path = folder / name[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        names.append(name[1])
    return names


def _tests_in(folder: Path) -> int:
    """Return the number of tests in the files of a folder."""
    return sum(
        len(re.findall(r"^(?:async )?def test_", path.read_text(), re.MULTILINE))
        for path in folder.glob("test_*.py")
    )


def _run_pytest(pytester: pytest.Pytester, *, more: int = 0) -> None:
    """Run the tests of the page, which are `more` than their functions because of parameters."""
    result = pytester.runpytest_inprocess(
        *("-p", "rmq_testing.plugin", "-p", "no:xdist", "-p", "no:timeout", "-p", "no:randomly"),
        "--asyncio-mode=auto",
        *("-o", "asyncio_default_fixture_loop_scope=function"),
    )
    result.assert_outcomes(passed=_tests_in(pytester.path) + more)


@contextmanager
def _program(folder: Path, *arguments: str, address: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run Python in a folder, with the modules of this process; kill it if it still runs at the end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    if address:
        environment["NAMESRV_ADDR"] = address
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _output(folder: Path, *arguments: str) -> str:
    """Run a program to its end, and return what it prints. Fails if its exit code is not 0."""
    with _program(folder, *arguments) as process:
        output, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0, output
    return output


def _end(process: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> str:
    """End a program by a signal, and return what it printed. Fails if its exit code is not 0."""
    process.send_signal(number)
    output, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == 0, output
    return output


@pytest.fixture
def cluster() -> Iterator[blocking.BrokerForTests]:
    """A broker for this test alone, since the programs name topics and groups."""
    with blocking.BrokerForTests() as broker:
        yield broker


# --- FastStream ---


def test_the_tests_of_the_faststream_page_pass(pytester: pytest.Pytester) -> None:
    _write("how-to-faststream.md", pytester.path, _ADDRESS)
    _run_pytest(pytester)


def test_the_faststream_service_runs_until_it_is_told_to_stop(
    cluster: blocking.BrokerForTests, tmp_path: Path
) -> None:
    _write("how-to-faststream.md", tmp_path, cluster.namesrv_address)
    cluster.publish("orders", '{"number": 7, "net": 10}', tags="paid")
    with _program(tmp_path, "shop.py", address=cluster.namesrv_address) as process:
        (invoice,) = cluster.expect("invoices", timeout_seconds=_SECONDS)
        output = _end(process)
    assert json.loads(invoice.body) == {"order": 7, "total": 12.0}
    assert (invoice.tags, invoice.keys) == ("new", ["7"])
    assert "waiting for messages" in output


def test_the_programs_of_the_faststream_page_run(cluster: blocking.BrokerForTests, tmp_path: Path) -> None:
    _write("how-to-faststream.md", tmp_path, cluster.namesrv_address)
    assert "2.5\n" in _output(tmp_path, "prices.py")
    _output(tmp_path, "publishing.py")
    assert len(cluster.expect("orders", 2)) == 2
    cluster.advance(2)
    cluster.expect("reminders")


def _broker_of(folder: Path, name: str) -> tuple[RocketBroker, dict[str, Any]]:
    module = runpy.run_path(str(folder / name))
    broker = module["broker"]
    assert isinstance(broker, RocketBroker)
    return broker, module


async def test_the_handlers_of_the_faststream_page_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write("how-to-faststream.md", tmp_path, _ADDRESS)
    broker, _ = _broker_of(tmp_path, "several_handlers.py")
    async with TestRocketBroker(broker):
        await broker.publish({"net": 1}, "returns")
        await broker.publish({"net": 2}, "orders", tag="sent", headers={"shop": "eu"})
        await broker.publish({"net": 3}, "orders", tag="open")
    printed = capsys.readouterr().out
    assert "returned {'net': 1" in printed
    assert "eu {'net': 2" in printed
    assert "3" not in printed

    broker, _ = _broker_of(tmp_path, "shop.py")
    document: dict[str, Any] = AsyncAPI(broker).to_specification().to_jsonable()
    assert document["components"]["schemas"]["Invoice"]["required"] == ["order", "total"]

    broker, module = _broker_of(tmp_path, "deliveries.py")
    for address, error in (("", RejectMessage), ("closed road", NackMessage)):
        with pytest.raises(error):
            await module["deliver"](address)
    async with TestRocketBroker(broker):
        await broker.publish("Main Street 1", "deliveries")
        await broker.publish("unknown", "stops")

    broker, _ = _broker_of(tmp_path, "secure.py")
    assert broker.config.broker_config.settings.tls is True

    broker, module = _broker_of(tmp_path, "watched.py")
    async with TestRocketBroker(broker):
        await broker.publish("x", "orders")
    name, labels = "published_messages_total", {"destination": "orders", "status": "success"}
    labels |= {"app_name": "shop", "broker": "rocketmq"}
    assert module["registry"].get_sample_value(f"faststream_{name}", labels) == 1


# --- FastAPI ---


def test_the_tests_of_the_fastapi_page_pass(pytester: pytest.Pytester) -> None:
    _write("how-to-fastapi.md", pytester.path, _ADDRESS)
    _run_pytest(pytester, more=1)


# --- Celery ---


def test_the_bridge_to_celery_starts_a_task_for_each_message(
    cluster: blocking.BrokerForTests, tmp_path: Path
) -> None:
    _write("how-to-celery.md", tmp_path, cluster.namesrv_address, _CELERY_REPLACEMENTS)
    (tmp_path / "queue").mkdir()
    sent = [cluster.publish("orders", f'{{"number": {number}, "net": 10}}') for number in range(4)]
    with (
        _program(tmp_path, "-m", "celery", "-A", "tasks", "worker", "--concurrency", "2") as worker,
        _program(tmp_path, "bridge.py") as bridge,
    ):
        invoices = cluster.expect("invoices", 4, timeout_seconds=_SECONDS)
        _end(bridge)
        output = _end(worker)
    assert {invoice.keys[1] for invoice in invoices} == {order.msg_id for order in sent}, output
    assert {invoice.body for invoice in invoices} == {b"12.00"}


def test_a_message_that_the_bridge_cannot_read_is_redelivered(
    cluster: blocking.BrokerForTests, tmp_path: Path
) -> None:
    _write("how-to-celery.md", tmp_path, cluster.namesrv_address, _CELERY_REPLACEMENTS)
    (tmp_path / "queue").mkdir()
    cluster.publish("orders", "no JSON")
    with _program(tmp_path, "bridge.py") as bridge:
        cluster.expect_redelivery("celery-bridge", timeout_seconds=_SECONDS)
        _end(bridge)


# --- Django ---


@pytest.fixture
def project(tmp_path: Path, cluster: blocking.BrokerForTests) -> Path:
    """The Django project of the page, with an empty database."""
    for name, text in _DJANGO_FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(_ADDRESS, cluster.namesrv_address))
    _write("how-to-django.md", tmp_path, cluster.namesrv_address)
    _output(tmp_path, "manage.py", "migrate", "--run-syncdb")
    return tmp_path


def _shell(project: Path, program: Sequence[str]) -> str:
    return _output(project, "manage.py", "shell", "-v", "0", "-c", "\n".join(program))


def test_the_tests_of_the_django_page_pass(project: Path) -> None:
    text = (project / "shop" / "tests.py").read_text()
    output = _output(project, "manage.py", "test")
    assert f"Ran {len(re.findall(r'    def test_', text))} tests" in output


def test_the_django_command_ships_orders_until_it_is_told_to_stop(
    cluster: blocking.BrokerForTests, project: Path
) -> None:
    _shell(
        project,
        [
            "from django.test import Client",
            "for number in (1, 2):",
            '    Client().post("/orders", {"number": number, "net": 5}, "application/json")',
        ],
    )
    with _program(project, "manage.py", "ship_orders") as process:
        cluster.consumed("warehouse", "orders", timeout_seconds=_SECONDS)
        assert "shipping orders" in _end(process)
    orders = ["from shop.models import Order", "print(Order.objects.filter(shipped=True).count())"]
    assert _shell(project, orders).strip() == "2"


def test_the_django_project_answers_the_check_of_an_open_transaction(
    cluster: blocking.BrokerForTests, project: Path
) -> None:
    program = """
import threading
from rmq_client import Message
from shop.messaging import producer
from shop.models import Order
for number in (8, 9):
    with producer().transaction(Message("orders", b"{}", keys=[str(number)])) as transaction:
        if number == 9:
            Order.objects.create(number=number, net=1)
        transaction.leave_open()
print("both are open", flush=True)
threading.Event().wait(60)
"""
    with _program(project, "manage.py", "shell", "-v", "0", "-c", program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "both are open\n"
        cluster.advance(60)
        (committed,) = cluster.expect("orders", timeout_seconds=_SECONDS)
        assert committed.keys == ["9"]
        cluster.expect_nothing("orders")
