"""The compiled form of a checkout: from the cache, or built."""

from __future__ import annotations

import hashlib
import platform
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Self

from .c_compiler import FLAGS, CCompiler, find_c_compiler
from .c_files import CompilationFailed
from .cache import cached
from .sources import compiled_modules

# Our own code that decides how the compiled form looks.
_WRITERS: Final = [Path(__file__).with_name(f"{name}.py") for name in ("c_code", "c_compiler", "corrections")]
# corrections.py corrects the code of this version.
MYPY_VERSION: Final = "2.4.1"


class NoCompiler(Exception):
    """A tool that compiling needs is missing."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The C compiler, and a digest of all that makes two compiled forms of equal sources differ."""

    compiler: CCompiler
    digest: str

    @classmethod
    def find(cls, root: Path) -> Self:
        """Return the tools of this interpreter and machine. Raises NoCompiler."""
        compiler = find_c_compiler()
        if isinstance(compiler, str):
            raise NoCompiler(compiler)
        try:
            packages = [version(name) for name in ("mypy", "librt")]
        except PackageNotFoundError as error:
            raise NoCompiler(f"the package {error.name} is missing (pip install -e '.[compile]')") from None
        if packages[0] != MYPY_VERSION:
            raise NoCompiler(
                f"mypy {packages[0]} is installed, but its code is only known for {MYPY_VERSION}"
            )
        facts = [
            *packages,
            sys.version,
            sysconfig.get_config_var("SOABI"),
            platform.machine(),
            compiler.version,
            *compiler.command,
            *FLAGS,
            *map(str, compiled_modules(root).values()),
            *(path.read_text() for path in _WRITERS),
        ]
        return cls(compiler, hashlib.sha256("\n".join(facts).encode()).hexdigest())


def compiled_form(root: Path, tools: Tools, paths: Sequence[Path]) -> Path:
    """Return a folder with the extension modules, laid out as packages, for the `sources` of the checkout.

    Raises CompilationFailed.
    """
    key = _key(root, tools, paths)

    def build(folder: Path) -> None:
        _build(root, paths, tools.compiler, folder)
        if _key(root, tools, paths) != key:
            raise CompilationFailed("a source changed meanwhile; run `make compile` again")

    return cached(key, build)


def _key(root: Path, tools: Tools, paths: Sequence[Path]) -> str:
    digest = hashlib.sha256(tools.digest.encode())
    for path in paths:
        content = (root / path).read_bytes()
        digest.update(f"{path} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:32]


def _build(root: Path, paths: Sequence[Path], compiler: CCompiler, folder: Path) -> None:
    # mypy takes a second to import, which nobody waits for whose form is cached.
    from .c_code import write_c_code  # noqa: PLC0415

    work = Path(tempfile.mkdtemp(prefix="rmq-compiling-"))
    try:
        modules = compiled_modules(root)
        compiler.compile(write_c_code(root, paths, work), modules, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
