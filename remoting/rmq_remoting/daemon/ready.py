"""The facts that a daemon announces once it serves: in a line for people, and in a file for programs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, TypeAlias

import orjson

_EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})

Listening: TypeAlias = tuple[str, int]
"""The host that a socket is bound to, and its port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The name and the addresses of a daemon that serves. Addresses are host:port, as clients give them."""

    name: str
    address: str
    remoting: str = ""
    namesrv: str | None = None  # None: the daemon needs no name server; empty: none is set
    route_held_by: Sequence[str] = ()  # addresses of other brokers that have this one's name and id
    grpc: Listening | None = None
    metrics: Listening | None = None
    shards: Sequence[str] = ()

    def line(self) -> str:
        """Return the facts of the line for people, which follow `ready `."""
        words = [self.name, self.address]
        if self.remoting:
            words += ["remoting", self.remoting]
        if self.namesrv is not None:
            words += ["namesrv", self.namesrv or "none"]
        for holder in self.route_held_by:
            words += ["route-held-by", holder]
        if self.grpc is not None:
            words += ["grpc", f"{self.grpc[0]}:{self.grpc[1]}"]
        if self.shards:
            words += ["shards", str(len(self.shards))]
        return " ".join(words)

    def write(self, path: Path) -> None:
        """Replace a file by the facts and those of the process, as JSON. Raises OSError.

        The file is not flushed, because nobody needs it after a crash of the machine.
        """
        # Looking the version up takes longer than the rest of the file, which few starts need.
        from importlib.metadata import version  # noqa: PLC0415

        from ..build_form import BUILD_FORM  # noqa: PLC0415

        process = {"version": version("rmq"), "pid": os.getpid(), "form": BUILD_FORM}
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        for key in ("grpc", "metrics"):
            facts[key] = facts[key] and local_address(*facts[key])
        document = process | {key: value for key, value in facts.items() if value}
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.write_bytes(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
        temporary.replace(path)


def local_address(host: str, port: int) -> str:
    """Return the address of a listening socket for clients on this machine, as host:port."""
    host = "127.0.0.1" if host in _EVERY_INTERFACE else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
