"""Build hook of wheels: adds the compiled form of the hot path (docs/compiling.md) if RMQ_COMPILE=1.

Without it a wheel is pure Python, with the same behaviour. An editable install gets the compiled form by
`python -m compiling`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the modules of the setting `modules`, paths relative to the project."""

    def dependencies(self) -> list[str]:
        """Return what compiling needs beside hatchling: mypy, and the packages that the sources import."""
        if not self._is_wanted():
            return []
        project = self.build_config.builder.metadata.core
        return [*project.dependencies, *project.optional_dependencies["compile"]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add the extension modules to the wheel."""
        if version == "editable" or not self._is_wanted():
            return
        sys.path.insert(0, self.root)
        from compiling.form import Tools, compiled_form  # noqa: PLC0415
        from compiling.sources import sources  # noqa: PLC0415

        root = Path(self.root)
        folder = compiled_form(root, Tools.find(root), sources(root))
        for library in folder.rglob("*.so"):
            build_data["force_include"][str(library)] = str(library.relative_to(folder))
        build_data["infer_tag"] = True
        build_data["pure_python"] = False

    def _is_wanted(self) -> bool:
        return os.environ.get("RMQ_COMPILE") == "1" and self.target_name == "wheel"
