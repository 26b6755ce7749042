"""Imports the compiled form of a checkout. `python -m compiling` copies this file into an environment.

If a source has changed since it was compiled, or with RMQ_COMPILE=0, all modules run from their sources. The
copy runs at each start of the interpreter, so it imports nothing until one of our packages is imported.
"""

import os
import sys

PACKAGES = ("rmq_remoting.", "rmq_broker.", "rmq__mypyc")


class CompiledForm:
    """Finds the extension modules of an editable install, in the cache of `python -m compiling`."""

    def __init__(self, manifest: str) -> None:
        self._manifest = manifest
        self._modules: dict[str, str] | None = None
        self._root = ""
        # Why modules run from their sources.
        self.reason = ""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        """Return the spec of a compiled module, or None, as importlib.abc.MetaPathFinder does."""
        if not name.startswith(PACKAGES):
            return None
        if self._modules is None:
            self._modules = self._fresh_modules()
        file = self._modules.get(name)
        if file is None or not self._is_in_this_checkout(path):
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, file)

    def _is_in_this_checkout(self, path: list[str] | None) -> bool:
        """Return whether a module's package is from the compiled checkout; the library has no package."""
        return path is None or any(folder.startswith(self._root + os.sep) for folder in path)

    def _fresh_modules(self) -> dict[str, str]:
        if os.environ.get("RMQ_COMPILE") == "0":
            self.reason = "RMQ_COMPILE=0"
            return {}
        import json

        try:
            with open(self._manifest, encoding="utf-8") as file:
                manifest = json.load(file)
            self._root = manifest["root"]
            for path, state in manifest["sources"].items():
                if self._has_changed(path, state):
                    self.reason = f"{path} has changed since it was compiled"
                    return {}
            modules: dict[str, str] = manifest["modules"]
            for library in modules.values():
                os.stat(library)
        except (OSError, ValueError) as error:
            self.reason = f"the compiled form is incomplete: {error}"
            return {}
        return modules

    def _has_changed(self, path: str, state: list[object]) -> bool:
        size, modified_ns, digest = state
        file = os.path.join(self._root, path)
        status = os.stat(file)
        if status.st_size != size:
            return True
        if status.st_mtime_ns == modified_ns:
            return False
        import hashlib

        with open(file, "rb") as source:
            return hashlib.sha256(source.read()).hexdigest() != digest


FINDER = CompiledForm(os.path.splitext(__file__)[0] + ".json")
sys.meta_path.insert(0, FINDER)
