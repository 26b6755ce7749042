"""Lets the environment of this interpreter import a compiled form, or no longer."""

from __future__ import annotations

import hashlib
import json
import os
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

_NAME: Final = "rmq_compiled_form"
_SITE: Final = Path(sysconfig.get_path("purelib"))


def states_of(root: Path, sources: Iterable[Path]) -> dict[str, list[Any]]:
    """Return the states of sources for `link`. Taken before compiling, they show edits made meanwhile."""
    return {str(source): _state(root / source) for source in sources}


def link(root: Path, folder: Path, tools: str, states: Mapping[str, list[Any]], site: Path = _SITE) -> None:
    """Let an environment import the compiled form in `folder`, as long as the sources have these states.

    `site` is the environment's folder of packages.
    """
    manifest = {
        "root": str(root),
        "tools": tools,
        "modules": {_dotted(path.relative_to(folder)): str(path) for path in folder.rglob("*.so")},
        "sources": states,
    }
    _write(site / f"{_NAME}.json", json.dumps(manifest))
    _write(site / f"{_NAME}.py", Path(__file__).with_name("form_finder.py").read_text())
    # Python runs lines of such a file that begin with `import` at its start.
    _write(site / f"{_NAME}.pth", f"import {_NAME}\n")


def unlink(site: Path = _SITE) -> None:
    """Let an environment import sources alone."""
    for suffix in (".pth", ".py", ".json"):
        (site / f"{_NAME}{suffix}").unlink(missing_ok=True)


def is_linked(root: Path, tools: str, site: Path = _SITE) -> bool:
    """Return whether an environment imports the form that these tools made from the present sources."""
    try:
        manifest = json.loads((site / f"{_NAME}.json").read_text())
    except (OSError, ValueError):
        return False
    return (
        all((site / f"{_NAME}{suffix}").is_file() for suffix in (".pth", ".py"))
        and (manifest["root"], manifest["tools"]) == (str(root), tools)
        and all(Path(path).is_file() for path in manifest["modules"].values())
        and all(_is_unchanged(root / path, known) for path, known in manifest["sources"].items())
    )


def _is_unchanged(path: Path, known: list[Any]) -> bool:
    size, _, digest = known
    return path.is_file() and path.stat().st_size == size and _digest(path) == digest


def _state(path: Path) -> list[Any]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, _digest(path)]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _dotted(path: Path) -> str:
    return ".".join([*path.parts[:-1], path.name.partition(".")[0]])


def _write(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text)
    new.replace(path)
