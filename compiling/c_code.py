"""Writes the C code of the compiled modules, by mypyc."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from mypy.build import BuildResult
from mypy.errors import CompileError
from mypy.fscache import FileSystemCache
from mypyc import build
from mypyc.codegen import emitmodule
from mypyc.common import RUNTIME_C_FILES
from mypyc.errors import Errors
from mypyc.irbuild.mapper import Mapper
from mypyc.options import CompilerOptions

from .c_files import GROUP, CCode, CompilationFailed
from .corrections import correct_modules, correct_setters
from .sources import compiled_modules


def write_c_code(root: Path, paths: Sequence[Path], folder: Path, *, corrected: bool = True) -> CCode:
    """Write the C code of a checkout's compiled modules into a folder. Raises CompilationFailed.

    `paths` are the `sources` of the checkout. mypyc's own `mypycify` has no place for the corrections,
    between its intermediate representation and C.
    """
    options = CompilerOptions(multi_file=True, group_name=GROUP, target_dir=str(folder))
    arguments = ["--config-file=pyproject.toml", f"--cache-dir={folder / 'types'}"]
    arguments += map(str, compiled_modules(root).values())
    files = FileSystemCache()
    with contextlib.chdir(root):
        modules, with_imports, mypy_options = build.get_mypy_config(arguments, None, options, files)
        groups = build.construct_groups(modules, False, True, GROUP)
        try:
            checked = emitmodule.parse_and_typecheck(with_imports, mypy_options, options, groups, files)
        except CompileError as error:
            raise CompilationFailed("\n".join(error.messages)) from None
        _check_sources(root, paths, checked)
    errors = Errors(mypy_options)
    mapper = Mapper({module.module: GROUP for module in modules})
    compiled = emitmodule.compile_modules_to_ir(checked, mapper, options, errors)
    if errors.num_errors:
        raise CompilationFailed("\n".join(errors.new_messages()))
    if corrected:
        correct_modules(compiled)
    texts: Sequence[tuple[str, str]] = emitmodule.compile_ir_to_c(groups, compiled, checked, mapper, options)[
        GROUP
    ]
    if corrected:
        texts = correct_setters(compiled, texts)
    checked.manager.metastore.close()
    for name, text in texts:
        (folder / name).write_text(text)
    extra = emitmodule.collect_source_dependencies(compiled)
    library = Path(build.include_dir())
    return CCode(
        modules=[folder / name for name, _ in texts if name.endswith(".c")],
        runtime=[library / name for name in [*RUNTIME_C_FILES, *sorted(each.path for each in extra)]],
        include_folders=[folder, library, *(library / name for each in extra for name in each.include_dirs)],
    )


def _check_sources(root: Path, paths: Sequence[Path], checked: BuildResult) -> None:
    """Fail if mypy read a source of ours that is not known to be one: its edits would not be noticed."""
    known = {root / path for path in paths}
    packages = {path.parents[0] for path in known if path.name == "__init__.py"}
    read = {Path(state.path).resolve() for state in checked.graph.values() if state.path}
    if missing := {path for path in read - known if packages & set(path.parents)}:
        raise CompilationFailed(f"compiling/sources.py does not list {', '.join(map(str, sorted(missing)))}")
