"""Hooks of MkDocs, which show the pages as GitHub does.

- Pages link to files outside of `docs/`, such as examples. The site gets a page for each of these files,
  below `source/`, and the links lead there.
- Headings have GitHub's anchors.
- Python-Markdown needs four spaces before the content of a list item, and pages have two or three.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

_DOCS: Final = "docs/"
_SOURCE: Final = "source/"
# Pages of the nav that are outside of `docs/`.
_ALWAYS: Final = ("CHANGELOG.md",)
_IN_SITE: Final = (".md", ".svg", ".png")
_LINK: Final = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCE: Final = re.compile(r"^ *(```+|~~~+)")
_LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".sh": "bash"}
_MAX_BYTES: Final = 200_000
_SKIPPED: Final = {"__pycache__", "target", "node_modules"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors that they have on GitHub."""
    config.mdx_configs["toc"] = {"permalink": True, "slugify": slug}
    return config


def slug(heading: str, _separator: str) -> str:
    """Return GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file and folder that pages link to, directly or through other such pages."""
    root = Path(config.config_file_path).parent
    waiting = list(_ALWAYS)
    for file in files.documentation_pages():
        waiting += _targets(file.content_string, _folder(file.src_uri))
    known = {file.src_uri for file in files}
    while waiting:
        path = waiting.pop()
        uri = _uri(root, path)
        if uri is None or uri in known or not uri.startswith(_SOURCE):
            continue
        known.add(uri)
        content = _content(root / path, path)
        files.append(File.generated(config, uri, content=content, inclusion=InclusionLevel.NOT_IN_NAV))
        waiting += _targets(content, _folder(uri))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to the repository's files lead to their pages, and indent the content of lists further."""
    root = Path(config.config_file_path).parent
    own = page.file.src_uri
    folder = _folder(own)

    def rewritten(match: re.Match[str]) -> str:
        path = _path(match[2], folder)
        uri = None if path is None else _uri(root, path)
        if uri is None or files.get_file_from_path(uri) is None:
            return match[0]  # MkDocs reports it
        return f"{match[1]}{posixpath.relpath(uri, posixpath.dirname(own) or '.')}{match[3] or ''}"

    lines: list[str] = []
    indent, was_code = "", False
    for line, in_code in _lines(markdown):
        if not (in_code and was_code):
            indent = " " * (len(line) - len(line.lstrip(" ")))  # in a block of code: that of its fence
        lines.append(indent + (line if in_code else _LINK.sub(rewritten, line)))
        was_code = in_code
    return "".join(lines)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Remove the marks before blocks of code in docstrings, which are those of reStructuredText."""
    return html.replace("<p>::</p>\n", "")


def _folder(uri: str) -> str:
    """Return the folder, below the root of the repository, of the file that a page shows."""
    path = uri.removeprefix(_SOURCE) if uri.startswith(_SOURCE) else _DOCS + uri
    return posixpath.dirname(path)


def _path(target: str, folder: str) -> str | None:
    """Return the path below the root that a link in a folder leads to; None for a link to the web."""
    return None if ":" in target else posixpath.normpath(posixpath.join(folder, target))


def _uri(root: Path, path: str) -> str | None:
    """Return the page of a path below the root, None if there is no such file."""
    if path.startswith(_DOCS) and path.endswith(_IN_SITE):
        return path.removeprefix(_DOCS)
    if path.startswith("..") or not (root / path).exists():
        return None
    if (root / path).is_dir():
        return f"{_SOURCE}{path}/index.md"
    if path.endswith("/README.md"):
        return f"{_SOURCE}{posixpath.dirname(path)}/index.md"
    return f"{_SOURCE}{path}" if path.endswith(".md") else f"{_SOURCE}{path}.md"


def _targets(markdown: str, folder: str) -> Iterator[str]:
    """Yield the paths below the root that the links of a page lead to."""
    for line, in_code in _lines(markdown):
        if not in_code:
            for match in _LINK.finditer(line):
                path = _path(match[2], folder)
                if path is not None:
                    yield path


def _lines(markdown: str) -> Iterator[tuple[str, bool]]:
    """Yield the lines of a page, and whether each is code."""
    opened = ""
    for line in markdown.splitlines(keepends=True):
        fence = _FENCE.match(line)
        yield line, bool(opened) or fence is not None
        if fence is not None and not opened:
            opened = fence[1]
        elif line.strip() == opened:
            opened = ""


def _content(file: Path, path: str) -> str:
    """Return the page of a file or folder."""
    if file.is_dir() or file.name == "README.md":
        return _folder_page(file if file.is_dir() else file.parent, path)
    text = file.read_text()
    if file.suffix == ".md":
        return text
    language = _LANGUAGES.get(file.suffix, "text")
    return f"# {path}\n\n~~~~{language}\n{text.rstrip()}\n~~~~\n"


def _folder_page(folder: Path, path: str) -> str:
    readme = folder / "README.md"
    head = readme.read_text() if readme.exists() else f"# {path}\n"
    names = [each.name for each in sorted(folder.iterdir()) if each.name != readme.name and _is_shown(each)]
    return f"{head}\n## Files\n\n" + "".join(f"- [{name}]({name})\n" for name in names)


def _is_shown(path: Path) -> bool:
    if path.name.startswith((".", "__init__")) or path.name in _SKIPPED:
        return False
    if path.is_dir():
        return True
    try:
        return path.stat().st_size < _MAX_BYTES and bool(path.read_text())
    except UnicodeDecodeError:
        return False
