"""Check the built site, page by page: `python -m docs.site_tools.check build/docs/site`.

MkDocs checks the Markdown. This program reads the HTML that a browser gets, and prints one line for each
problem. The exit code is 1 if there is one.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

# The page of a web server for missing pages: its links begin at the root of that server.
_UNCHECKED: Final = {"404.html"}
_START: Final = "index.html"
_LOADED: Final = {"img": "src", "script": "src", "source": "src", "link": "href"}
_VERBATIM: Final = {"code", "pre", "script", "style", "svg", "textarea"}
# Markdown that has reached the reader as text: links, fences, directives, rows of tables, bold words, and
# list items after the first line of a paragraph.
_LEFT_OVER: Final = re.compile(r"\]\([^)]*\)|```|^:::|^\|.*\|$|\*\*\w|\n(?:[-*]|\d+\.) ", re.MULTILINE)


@dataclass(slots=True)
class PageContent:
    """The parts of a page that are checked. Texts are those of paragraphs and cells, without code."""

    title: str = ""
    headings: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    images_without_text: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.content = PageContent()
        self._verbatim = 0
        self._collecting: str | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        content = self.content
        if "id" in attributes:
            content.ids.append(attributes["id"])
        if tag == "a" and "name" in attributes:
            content.ids.append(attributes["name"])
        if tag == "a" and "href" in attributes:
            content.links.append(attributes["href"])
        if tag in _LOADED and (address := attributes.get(_LOADED[tag])):
            content.loaded.append(address)
        if tag == "img" and not attributes.get("alt", "").strip():
            content.images_without_text.append(attributes.get("src", ""))
        if tag in _VERBATIM:
            self._verbatim += 1
        if tag in ("p", "td", "li", "h1", "title"):
            self._flush()
            self._collecting = tag

    def handle_endtag(self, tag: str) -> None:
        if tag in _VERBATIM:
            self._verbatim = max(0, self._verbatim - 1)
        if tag == self._collecting or tag in ("ul", "ol", "table"):
            self._flush()

    def handle_data(self, data: str) -> None:
        if self._collecting is not None and not self._verbatim:
            self._text += data

    def _flush(self) -> None:
        text = self._text.strip()
        if self._collecting == "title":
            self.content.title = self.content.title or text
        elif self._collecting == "h1":
            self.content.headings.append(text)
        elif text:
            self.content.texts.append(text)
        self._collecting, self._text = None, ""


def read_page(html: str) -> PageContent:
    """Return the parts of a page that are checked."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.content


def problems(site: Path) -> Iterator[str]:
    """Yield the problems of a site, one line each, which begins with the page."""
    pages = {
        path.relative_to(site).as_posix(): read_page(path.read_text())
        for path in sorted(site.rglob("*.html"))
        if path.name not in _UNCHECKED
    }
    if _START not in pages:
        yield f"{site}: has no {_START}"
        return
    for name, page in pages.items():
        for problem in (*_problems_of(page), *_broken_links(site, name, pages)):
            yield f"{name}: {problem}"
    for name in sorted(pages.keys() - _reachable(pages)):
        yield f"{name}: no link leads to it from {_START}"


def _problems_of(page: PageContent) -> Iterator[str]:
    if not page.title:
        yield "has no title"
    if not page.headings:
        yield "has no heading of the first level"
    for name, count in Counter(page.ids).items():
        if count > 1:
            yield f"has the anchor {name!r} {count} times"
    for source in page.images_without_text:
        yield f"the image {source} has no text in its place"
    for address in page.loaded:
        if urlsplit(address).netloc:
            yield f"loads {address} from another server"
    for text in page.texts:
        if (found := _LEFT_OVER.search(text)) is not None:
            yield f"shows Markdown: {found[0]!r} in {text[:80]!r}"


def _broken_links(site: Path, name: str, pages: dict[str, PageContent]) -> Iterator[str]:
    page = pages[name]
    for address in (*page.links, *page.loaded):
        target = _target(name, address)
        if target is None:
            continue
        path, anchor = target
        if not (site / path).is_file():
            yield f"links to {address}, which does not exist"
        elif anchor and path in pages and anchor not in pages[path].ids:
            yield f"links to {address}, and {path} has no such anchor"


def _target(name: str, address: str) -> tuple[str, str] | None:
    """Return file and anchor of a link of a page; None for a link to another server."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    path = (
        posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path)))
        if parts.path
        else name
    )
    if parts.path.endswith("/") or path == ".":
        path = posixpath.normpath(posixpath.join(path, _START))
    return path, unquote(parts.fragment)


def _reachable(pages: dict[str, PageContent]) -> set[str]:
    found, waiting = {_START}, [_START]
    while waiting:
        name = waiting.pop()
        for address in pages[name].links:
            target = _target(name, address)
            if target is not None and target[0] in pages and target[0] not in found:
                found.add(target[0])
                waiting.append(target[0])
    return found


def main() -> int:
    """Check the site in the folder that the command line names; return the exit code."""
    site = Path(sys.argv[1])
    found = list(problems(site))
    print("\n".join(found) if found else f"{site}: every page is in order")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
