"""Build hook: compiles the hot path with mypyc, for `make wheel`.

The modules in pyproject.toml (`tool.hatch.build.targets.wheel.hooks.custom`) become extension modules beside
their sources in the wheel; Python imports the extension. Without the hook a wheel is pure Python, with the
same behaviour. docs/compiling.md lists the rules that compiled modules follow.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The shared library of all modules is called <group>__mypyc.
_GROUP = "rmq"

# How mypyc 2.4.1 stores to an attribute: it releases the old value, maybe inside a check, and then stores.
_RELEASE = r" *CPy\w*DECREF\w*\({attribute}(?:\.f\d+)*\);\n"
_FIRST_RELEASE = _RELEASE.format(attribute=r"(?P<attribute>(?:\(\(\w+ \*\)\w+\)|self)->\w+)")
_NEXT_RELEASE = _RELEASE.format(attribute="(?P=attribute)")
_STORE = re.compile(
    r"(?P<check> *if \([^\n]*\) \{\n)?"
    rf"(?P<releases>{_FIRST_RELEASE}(?:{_NEXT_RELEASE})*)"
    r"(?(check) *\}\n)"
    r"(?P<store> *(?P=attribute) = [^\n]*;\n)"
)
# A release of anything but a variable.
_UNSAFE_STORE = re.compile(r"CPy\w*D(?:EC|ec)R(?:EF|ef)\w*\([^;\n]*(?:->|\*)[^;\n]*\);")

# How mypyc 2.4.1 keeps a freed closure or generator for the next one: it offers it first, and then clears it.
_KEEP_FREED = re.compile(
    r"(?P<check> *if \((?P<freed>\w+_free_instance) == NULL\) \{\n)"
    r" *(?P=freed) = self;\n(?P<clears>(?:(?! *return;)[^\n]*\n)*) *return;\n *\}\n"
)
_UNSAFE_REUSE = re.compile(r"\w+_free_instance = self;\n(?! *return;)")


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the modules of the setting `modules`, paths relative to the project."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add the extension modules to the wheel. An editable install stays interpreted."""
        if version == "editable":
            return
        self._folder = Path(tempfile.mkdtemp(prefix="rmq-compile-"))
        libraries = self._folder / "libraries"
        with contextlib.chdir(self.root):
            _compile(self.config["modules"], self._folder, libraries)
        for library in libraries.rglob("*.so"):
            build_data["force_include"][str(library)] = str(library.relative_to(libraries))
        build_data["infer_tag"] = True
        build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary files."""
        if version != "editable":
            shutil.rmtree(self._folder, ignore_errors=True)


def _compile(modules: list[str], folder: Path, libraries: Path) -> None:
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415

    options = ["--config-file=pyproject.toml", f"--cache-dir={folder / 'types'}"]
    extensions = mypycify(
        [*options, *modules],
        opt_level="3",
        debug_level="0",
        multi_file=True,
        group_name=_GROUP,
        target_dir=str(folder / "c"),
    )
    for source in (folder / "c").rglob("*.c"):
        source.write_text(_clear_before_reuse(_store_before_release(source.read_text())))
    # Warnings of a compiler that mypyc does not know yet are no reason to fail.
    for extension in extensions:
        extension.extra_compile_args = [each for each in extension.extra_compile_args if each != "-Werror"]
    command = Distribution({"name": _GROUP, "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(libraries), str(folder / "objects")
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    command.run()


def _store_before_release(code: str) -> str:
    """Return C code of mypyc in which an attribute has its new value before the old one is released.

    mypyc releases first. Code that runs meanwhile, in this thread or in another one, would find the released
    object in the attribute, and crash. Raises ValueError if a release has an unknown form.
    """
    return _corrected(_STORE.sub(_in_order, code), _UNSAFE_STORE)


def _in_order(match: re.Match[str]) -> str:
    attribute, check = match["attribute"], match["check"]
    released = (check or "") + match["releases"] + ("}\n" if check else "")
    return (
        f"{{ __typeof__({attribute}) old_value = {attribute};\n"
        + match["store"]
        + released.replace(attribute, "old_value")
        + "}\n"
    )


def _clear_before_reuse(code: str) -> str:
    """Return C code of mypyc in which a freed closure or generator is cleared before the next call gets it.

    mypyc offers it first. Code that runs while it is cleared could get it, and two calls would share it.
    Raises ValueError if one is kept in an unknown form.
    """
    kept = r"\g<check>\g<clears>\g<check>\g<freed> = self;\nreturn;\n}\n}\n"
    return _corrected(_KEEP_FREED.sub(kept, code), _UNSAFE_REUSE)


def _corrected(code: str, unsafe: re.Pattern[str]) -> str:
    """Return C code in which nothing unsafe is left. Raises ValueError."""
    if found := unsafe.search(code):
        raise ValueError(f"hatch_build.py cannot correct this line of mypyc's: {found[0].strip()}")
    return code
