"""The compiled modules, and all sources that their code depends on."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_HOOK: Final = ("tool", "hatch", "build", "targets", "wheel", "hooks", "custom")


def compiled_modules(root: Path) -> dict[str, Path]:
    """Return the paths of the compiled modules, relative to the checkout, by their dotted names."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    for part in _HOOK:
        settings = settings[part]
    paths = [Path(path) for path in settings["modules"]]
    return {_dotted(path): path for path in paths}


def sources(root: Path) -> list[Path]:
    """Return the compiled modules and every module that they import, directly or not, as relative paths.

    Types and constants of imported modules go into the C code, so a change in one of them needs a new build.
    """
    packages = {path.parent.name: path.parent.parent for path in root.glob("*/rmq_*/__init__.py")}
    found: set[Path] = set()
    pending = [root / path for path in compiled_modules(root).values()]
    while pending:
        path = pending.pop()
        if path in found:
            continue
        found.add(path)
        for name in _imported(path, packages):
            pending += _files(name, packages)
    return sorted(path.relative_to(root) for path in found)


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts[1:])


def _imported(path: Path, packages: dict[str, Path]) -> Iterator[str]:
    """Return the dotted names that a module imports from our packages: modules, or names in modules."""
    top = next(parent for parent in path.parents if parent.name in packages)
    package = ".".join(path.parent.relative_to(top.parent).parts)
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{name}.{alias.name}" for alias in node.names)


def _files(name: str, packages: dict[str, Path]) -> Iterator[Path]:
    """Return the files that importing a name runs: its packages, and itself if it is a module."""
    parts = name.split(".")
    if parts[0] not in packages:
        return
    folder = packages[parts[0]]
    for part in parts:
        folder /= part
        for path in (folder / "__init__.py", folder.with_suffix(".py")):
            if path.is_file():
                yield path
