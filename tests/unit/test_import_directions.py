"""Code that several folders of tests share is in tests/support, which imports none of these folders."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_TESTS: Final = Path(__file__).resolve().parents[1]
_IMPORT: Final = re.compile(r"^\s*(?:from|import) tests\.(\w+)", re.MULTILINE)


def _imports_of(folder: str) -> set[str]:
    """Return the folders of tests that the modules of one folder import."""
    modules = (_TESTS / folder).rglob("*.py")
    return {name for module in modules for name in _IMPORT.findall(module.read_text())}


def test_support_imports_no_folder_of_tests() -> None:
    assert _imports_of("support") == {"support"}


def test_only_unit_tests_import_from_unit_tests() -> None:
    folders = [folder.name for folder in _TESTS.iterdir() if folder.is_dir()]
    assert [folder for folder in folders if "unit" in _imports_of(folder)] == ["unit"]
