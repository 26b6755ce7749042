"""Fixtures of the tests with hosts."""

from __future__ import annotations

import pytest

from tests.crash.conftest import seed
from tests.support import toolchain
from tests.support.requirements import built_or_skip
from tests.support.toolchain import JavaProgram

__all__ = ["seed"]


@pytest.fixture(scope="session")
def apache_program() -> JavaProgram:
    """The servers of Apache."""
    return built_or_skip(toolchain.apache_servers)
