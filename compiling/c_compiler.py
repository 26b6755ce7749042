"""Compiles the C code into extension modules: a few joined files, as many at once as there are cores."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from .c_files import LIBRARY, CCode, CompilationFailed

# With -Og a build takes 0.7 of the CPU, and a send 8 % more instructions. With -O2 a build takes 1.8 of it.
# -fwrapv and -fno-strict-aliasing are what Python's own headers need.
FLAGS: Final = ("-O1", "-fPIC", "-fwrapv", "-fno-strict-aliasing", "-DNDEBUG", "-w")
# Each joined file reads the headers of Python and mypyc once. More of them keep all cores busy to the end.
_JOINED_FILES: Final = 8
_SUFFIX: Final = sysconfig.get_config_var("EXT_SUFFIX")
# A module's own file only finds its code in the library. Without headers it compiles at once.
_SHIM: Final = """\
extern void *PyImport_ImportModule(const char *), *PyObject_GetAttrString(void *, const char *);
extern void *PyCapsule_GetPointer(void *, const char *);
extern void Py_DecRef(void *);
__attribute__((visibility("default"))) void *PyInit_{last}(void) {{
    void *library = PyImport_ImportModule("{library}"), *capsule, *(*start)(void);
    if (!library) return 0;
    capsule = PyObject_GetAttrString(library, "init_{exported}");
    Py_DecRef(library);
    if (!capsule) return 0;
    start = (void *(*)(void))PyCapsule_GetPointer(capsule, "{library}.init_{exported}");
    Py_DecRef(capsule);
    return start ? start() : 0;
}}
"""


@dataclass(frozen=True, slots=True)
class CCompiler:
    """A C compiler that makes extension modules for this interpreter."""

    command: tuple[str, ...]
    version: str

    def compile(self, code: CCode, modules: Iterable[str], folder: Path) -> None:
        """Write the extension modules into `folder`, laid out as packages. Raises CompilationFailed."""
        work = code.include_folders[0] / "objects"
        work.mkdir()
        units = [*_joined(code.modules, work), *_joined(code.runtime, work / "runtime", count=1)]
        includes = [f"-I{path}" for path in (*code.include_folders, sysconfig.get_path("include"))]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as cores:
            objects = list(cores.map(partial(self._object, includes), units))
            shims = cores.map(partial(self._shim, work, folder), modules)
            self._run("-shared", "-s", *objects, "-o", folder / f"{LIBRARY}{_SUFFIX}")
            list(shims)

    def _object(self, includes: Sequence[str], unit: Path) -> Path:
        made = unit.with_suffix(".o")
        self._run(*FLAGS, *includes, "-c", unit, "-o", made)
        return made

    def _shim(self, work: Path, folder: Path, module: str) -> None:
        source = work / f"{module}.c"
        names = {"last": module.rpartition(".")[2], "exported": module.replace(".", "___")}
        source.write_text(_SHIM.format(library=LIBRARY, **names))
        made = folder / f"{module.replace('.', '/')}{_SUFFIX}"
        made.parent.mkdir(parents=True, exist_ok=True)
        self._run("-shared", "-s", "-fPIC", "-w", source, "-o", made)

    def _run(self, *arguments: str | Path) -> None:
        done = subprocess.run([*self.command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompilationFailed(f"{shlex.join(self.command)} failed:\n{done.stderr[-4000:]}")


def find_c_compiler() -> CCompiler | str:
    """Return the compiler of the variable CC, or gcc, clang or cc; or the reason why there is none."""
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.is_file():
        return f"{header} is missing (Debian: apt install python3-dev)"
    named = os.environ.get("CC")
    for command in [shlex.split(named)] if named else [["gcc"], ["clang"], ["cc"]]:
        if command and shutil.which(command[0]):
            version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
            if version.returncode == 0:
                return CCompiler(tuple(command), version.stdout.partition("\n")[0])
    return f"there is no C compiler{f' {named}' if named else ''} (Debian: apt install gcc)"


def _joined(files: Iterable[Path], folder: Path, count: int = _JOINED_FILES) -> list[Path]:
    """Write `count` C files that include all of the files, about equally large, the largest first."""
    folder.mkdir(exist_ok=True)
    groups: list[list[Path]] = [[] for _ in range(count)]
    sizes = [0] * count
    for path in sorted(files, key=lambda path: -path.stat().st_size):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(path)
        sizes[smallest] += path.stat().st_size
    joined = []
    for number, group in enumerate(groups):
        path = folder / f"joined{number}.c"
        path.write_text("".join(f'#include "{each}"\n' for each in group))
        joined.append(path)
    return joined
