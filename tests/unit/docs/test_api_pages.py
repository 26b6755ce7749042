"""The pages that the site fills with docstrings have every public name of the SDK."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from types import ModuleType

import pytest

import rmq_client
import rmq_faststream
import rmq_testing
from rmq_client import blocking
from tests.unit.docs.pages import DOCS

_FOLDER = DOCS / "api"


def test_the_pages_are_what_their_script_writes() -> None:
    written = runpy.run_path(str(DOCS / "make_api.py"))["pages"]()
    found = {path.name: path.read_text() for path in _FOLDER.glob("*.md")}
    assert found == written, "run: python docs/make_api.py"


def test_every_public_name_is_on_one_page() -> None:
    text = "\n".join(path.read_text() for path in _FOLDER.glob("*.md"))
    counts = Counter(re.findall(r"^::: rmq_client\.(\w+)$", text, re.MULTILINE))
    public = {name for name in rmq_client.__all__ if not name.startswith("_")}
    assert counts.keys() == public - {"blocking"}
    assert [name for name, count in counts.items() if count > 1] == []


def test_the_blocking_face_has_a_page() -> None:
    text = (_FOLDER / "blocking.md").read_text()
    names = re.findall(r"^::: rmq_client\.blocking\.(\w+)$", text, re.MULTILINE)
    assert names == blocking.__all__


@pytest.mark.parametrize(
    ("package", "page"), [(rmq_testing, "testing.md"), (rmq_faststream, "faststream.md")]
)
def test_small_packages_have_a_page(package: ModuleType, page: str) -> None:
    text = (_FOLDER / page).read_text()
    names = re.findall(rf"^::: {package.__name__}\.(?:\w+\.)?(\w+)$", text, re.MULTILINE)
    own = {name for name in package.__all__ if name not in rmq_client.__all__ and not name.endswith("Code")}
    assert own <= set(names)
