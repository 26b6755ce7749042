"""Profiles: named connection settings in a TOML file.

::

    default = "production"

    [profiles.production]
    namesrv = "10.0.0.1:9876;10.0.0.2:9876"
    access_key = "admin"
    secret_key = "..."
"""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import typer

from .exits import CommandFailed, Exit

# What a profile may hold, and the type of each.
KEYS: Final[Mapping[str, type]] = {
    "namesrv": str,
    "access_key": str,
    "secret_key": str,
    "tls": bool,
    "tls_ca": str,
    "tls_verify": str,
    "namespace": str,
    "timeout": float,
    "output": str,
}
SECRET_KEYS: Final = frozenset({"secret_key"})

Profile = dict[str, str | bool | float]


@dataclass(slots=True)
class ProfileFile:
    """The profiles of a file, and the name of the default one."""

    path: Path
    default: str | None = None
    profiles: dict[str, Profile] = field(default_factory=dict)

    def find(self, name: str | None) -> Profile:
        """Return a profile, or with None the default one; empty if there is no default.

        Raises CommandFailed for an unknown name.
        """
        chosen = name or self.default
        if chosen is None:
            return {}
        if chosen not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise CommandFailed(f"no profile {chosen} in {self.path}; it has: {known}", Exit.USAGE)
        return self.profiles[chosen]

    def save(self) -> None:
        """Replace the file. Only its owner may read it: it may hold secret keys."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".rmq-")  # mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(self._text())
        Path(temporary).replace(self.path)

    def _text(self) -> str:
        lines = [] if self.default is None else [f"default = {json.dumps(self.default)}\n"]
        for name, profile in sorted(self.profiles.items()):
            lines.append(f"\n[profiles.{json.dumps(name)}]\n")
            lines += [f"{key} = {json.dumps(value)}\n" for key, value in sorted(profile.items())]
        return "".join(lines)


def config_path() -> Path:
    """Return the path of the file: of the variable RMQ_CONFIG, or in the user's folder for settings."""
    given = os.environ.get("RMQ_CONFIG")
    return Path(given) if given else Path(typer.get_app_dir("rmq")) / "config.toml"


def load_profiles(path: Path | None = None) -> ProfileFile:
    """Read the file; there are no profiles without one. Raises CommandFailed."""
    path = path or config_path()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ProfileFile(path)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CommandFailed(f"{path} cannot be read: {error}", Exit.USAGE) from error
    tables = content.get("profiles", {})
    default = content.get("default")
    if not isinstance(tables, dict) or not isinstance(default, str | None):
        raise CommandFailed(f"{path}: 'profiles' must be tables, and 'default' a name", Exit.USAGE)
    return ProfileFile(path, default, {name: _checked(path, name, table) for name, table in tables.items()})


def parse_value(key: str, text: str) -> str | bool | float:
    """Return the value of a key, given as text. Raises CommandFailed for an unknown key or a wrong value."""
    kind = KEYS.get(key)
    if kind is None:
        raise CommandFailed(f"unknown key {key}: a profile has {', '.join(KEYS)}", Exit.USAGE)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise CommandFailed(f"{key}={text!r}: must be true or false", Exit.USAGE)
        return text.lower() == "true"
    if kind is float:
        try:
            return float(text)
        except ValueError as error:
            raise CommandFailed(f"{key}={text!r}: must be a number of seconds", Exit.USAGE) from error
    return text


def _checked(path: Path, name: str, table: object) -> Profile:
    if not isinstance(table, dict):
        raise CommandFailed(f"{path}: profile {name} must be a table", Exit.USAGE)
    for key, value in table.items():
        kind = KEYS.get(key)
        if kind is None:
            known = ", ".join(KEYS)
            raise CommandFailed(
                f"{path}: profile {name} has the unknown key {key}; known: {known}", Exit.USAGE
            )
        if not isinstance(value, (int, float) if kind is float else kind):
            raise CommandFailed(f"{path}: profile {name}: {key} must be a {kind.__name__}", Exit.USAGE)
    return dict(table)
