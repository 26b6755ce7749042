"""C files as mypyc writes them and the C compiler reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The shared library of all modules is called <group>__mypyc.
GROUP: Final = "rmq"
LIBRARY: Final = f"{GROUP}__mypyc"


class CompilationFailed(Exception):
    """mypy, mypyc or the C compiler reported an error."""


@dataclass(frozen=True, slots=True)
class CCode:
    """C files in a folder: those of the modules, and those of mypyc's runtime library."""

    modules: list[Path]
    runtime: list[Path]
    include_folders: list[Path]
