"""References: fastjson writes `{"$ref":"$.path"}` for an object that it has written before.

A path starts at the root `$`; `.name` steps into an object (a backslash precedes special characters), `[0]`
into an array or a map with integer keys. Inside a map with object keys, `.null` is its first key (fastjson
1.2.83, SerialContext and DefaultJSONParser.resolveReference).
"""

from __future__ import annotations

import re
from typing import Final

from ..errors import JsonError
from .object_key import ObjectKey

# Bounds, because a short text of nested references can expand to a tree of any size.
MAX_EXPANDED_NODES: Final = 2_000_000
MAX_EXPANDED_DEPTH: Final = 128
_MAX_CHAIN: Final = 16

_REFERENCE: Final = "$ref"
_STEP: Final = re.compile(r"\.((?:[^.\[\]\\]|\\.)++)|\[([0-9]{1,9})\]", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_UNDER_WAY: Final = (0, -1)


def resolve_references(root: object, most_values: int = MAX_EXPANDED_NODES) -> object:
    """Replace every reference with its target, in place; the target is shared, not copied.

    Raises JsonError for a reference without a target or inside its own target, and if the expanded value
    would be too deep or too large.
    """
    if _path_of(root) is not None:
        raise JsonError("the whole text is a reference")
    _Resolver(root).replace_in(root, MAX_EXPANDED_DEPTH)
    _Measure(min(most_values, MAX_EXPANDED_NODES)).of(root, MAX_EXPANDED_DEPTH)
    return root


def _path_of(value: object) -> str | None:
    """Return the path if the value is a reference."""
    if isinstance(value, ObjectKey):
        value = value.to_wire()
    if isinstance(value, dict) and len(value) == 1 and isinstance(path := value.get(_REFERENCE), str):
        return path
    return None


class _Resolver:
    """Resolves paths from one root; caches targets, so that each path is followed once."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._targets: dict[str, object] = {}

    def replace_in(self, container: object, levels_left: int) -> None:
        if levels_left < 0:
            raise JsonError(f"nested deeper than {MAX_EXPANDED_DEPTH} levels")
        if isinstance(container, list):
            for index, item in enumerate(container):
                container[index] = self._replaced(item, levels_left)
        elif isinstance(container, dict):
            for key, item in container.items():
                container[key] = self._replaced(item, levels_left)
            if any(_path_of(key) is not None for key in container):
                members = {self._replaced_key(key): item for key, item in container.items()}
                container.clear()
                container.update(members)

    def _replaced(self, value: object, levels_left: int) -> object:
        path = _path_of(value)
        if path is not None:
            return self._target(path, _MAX_CHAIN)
        self.replace_in(value, levels_left - 1)
        return value

    def _replaced_key(self, key: object) -> object:
        path = _path_of(key)
        if path is None:
            return key
        target = self._target(path, _MAX_CHAIN)
        try:
            return ObjectKey.of(target) if isinstance(target, dict) else _hashable(target)
        except TypeError as error:
            raise JsonError(f"the target of the reference {path!r} cannot be a map key") from error

    def _target(self, path: str, chain_left: int) -> object:
        if path in self._targets:
            return self._targets[path]
        if not path.startswith("$"):
            # "@" and ".." are for a Java object inside itself, which no body has.
            raise JsonError(f"the reference {path!r} does not start at the root")
        if chain_left == 0:
            raise JsonError(f"the reference {path!r} leads through more than {_MAX_CHAIN} others")
        position, node = 1, self._root
        while position < len(path):
            step = _STEP.match(path, position)
            if step is None:
                raise JsonError(f"the reference {path!r} is not a path")
            position = step.end()
            node = _stepped(node, step, path)
            inner = _path_of(node)
            if inner is not None:
                node = self._target(inner, chain_left - 1)
        self._targets[path] = node
        return node


def _hashable(value: object) -> object:
    hash(value)
    return value


def _stepped(node: object, step: re.Match[str], path: str) -> object:
    name, index = step[1], step[2]
    if isinstance(node, list) and index is not None and int(index) < len(node):
        return node[int(index)]
    if isinstance(node, dict):
        text = index if name is None else _ESCAPED.sub(r"\1", name)
        if text in node:
            return node[text]
        if _INTEGER.fullmatch(text) and int(text) in node:
            return node[int(text)]
        first_key = next(iter(node), None)
        if text == "null" and isinstance(first_key, ObjectKey):
            return first_key
    raise JsonError(f"the reference {path!r} has no target")


class _Measure:
    """Counts values and levels with all references expanded."""

    def __init__(self, most_values: int) -> None:
        self._most = most_values
        self._known: dict[int, tuple[int, int]] = {}

    def of(self, node: object, levels_left: int) -> tuple[int, int]:
        """Return the values and the levels under a node. Raises JsonError over a bound."""
        if not isinstance(node, dict | list):
            return 1, 0
        known = self._known
        if id(node) in known:
            if known[id(node)] is _UNDER_WAY:
                raise JsonError("a reference lies inside its own target")
            return known[id(node)]
        if levels_left < 0:
            raise JsonError(f"nested deeper than {MAX_EXPANDED_DEPTH} levels")
        known[id(node)] = _UNDER_WAY
        size, height = 1, 0
        for item in node.values() if isinstance(node, dict) else node:
            item_size, item_height = self.of(item, levels_left - 1)
            size += item_size
            height = max(height, item_height + 1)
        if size > self._most:
            raise JsonError(f"the references expand to more than {self._most} values")
        if height > MAX_EXPANDED_DEPTH:
            raise JsonError(f"nested deeper than {MAX_EXPANDED_DEPTH} levels")
        known[id(node)] = size, height
        return size, height
