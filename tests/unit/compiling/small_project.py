"""A project with a package of its own, to compile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from compiling.c_code import write_c_code
from compiling.c_compiler import CCompiler, find_c_compiler
from compiling.sources import compiled_modules, sources
from tests.support.requirements import fail_or_skip

_SETTINGS = """\
[tool.mypy]
strict = true
mypy_path = "broker"

[tool.hatch.build.targets.wheel.hooks.custom]
modules = ["broker/rmq_broker/compiled.py"]
"""


class SmallProject:
    """A folder with a package `rmq_broker`, whose module `compiled` can be compiled."""

    def __init__(self, root: Path, modules: dict[str, str]) -> None:
        self.root = root
        self.is_corrected = True
        self.package = root / "broker" / "rmq_broker"
        self.package.mkdir(parents=True)
        (root / "pyproject.toml").write_text(_SETTINGS)
        for name, text in {"__init__": "", **modules}.items():
            (self.package / f"{name}.py").write_text(text)

    def compile(self, name: str, *, corrected: bool = True) -> Path:
        """Return a new folder of this name with the extension modules."""
        work, made = self.root / f"{name}-work", self.root / name
        work.mkdir()
        made.mkdir()
        code = write_c_code(self.root, sources(self.root), work, corrected=corrected)
        c_compiler().compile(code, compiled_modules(self.root), made)
        return made

    def sources(self) -> list[Path]:
        """Return what the compiled form depends on."""
        return sources(self.root)

    def run(self, program: str, *folders: Path) -> subprocess.CompletedProcess[str]:
        """Run a program with these folders and the sources in its search path."""
        path = os.pathsep.join(map(str, (*folders, self.package.parent)))
        environment = {key: value for key, value in os.environ.items() if key != "RMQ_COMPILE"}
        # -S: without the link of this environment.
        command = [sys.executable, "-S", "-c", program]
        return subprocess.run(
            command,
            # Python takes a source of equal length for unchanged for up to a second.
            env=environment | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )


def c_compiler() -> CCompiler:
    """Return the C compiler, or skip the test."""
    found = find_c_compiler()
    if isinstance(found, str):
        fail_or_skip(found, tool="cc")
    return found
