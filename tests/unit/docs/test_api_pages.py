"""The pages that the site fills with docstrings have every public name of the SDK."""

from __future__ import annotations

import re
import runpy
from collections import Counter

import rmq_client
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
    assert counts.keys() == public | {"blocking"}
    assert [name for name, count in counts.items() if count > 1] == []
