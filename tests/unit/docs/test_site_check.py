"""The check of the built site (docs/site_tools/check.py) finds the mistakes that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site_tools.check import problems

_HEAD = "<title>Site</title><h1>Page</h1>"


def _problems(folder: Path, **pages: str) -> list[str]:
    """Return the problems of a site with these pages, each of which has a title and a heading."""
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(_HEAD + body)
    return list(problems(folder))


def test_a_good_site_has_no_problems(tmp_path: Path) -> None:
    (tmp_path / "picture.svg").write_text("<svg/>")
    index = (
        '<h2 id="part">Part</h2><p>Text with <code>[a](b) and ```</code>.</p>'
        '<a href="page.html#there">page</a> <a href="#part">part</a> <a href="https://example.org/x">web</a>'
        '<img src="picture.svg" alt="A picture">'
    )
    assert _problems(tmp_path, index=index, page='<p id="there">x</p>') == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="gone.html">x</a>', "links to gone.html, which does not exist"),
        ('<a href="#gone">x</a>', "links to #gone, and index.html has no such anchor"),
        ('<img src="gone.png" alt="x">', "links to gone.png, which does not exist"),
        ('<img src="index.html">', "the image index.html has no text in its place"),
        ('<p id="a">x</p><p id="a">y</p>', "has the anchor 'a' 2 times"),
        ('<script src="https://cdn.example.org/x.js"></script>', "from another server"),
        ("<p>See [this](page.md).</p>", "shows Markdown: '](page.md)'"),
        ("<p>Three things:\n- one\n- two</p>", "shows Markdown: '\\n- '"),
        ("<p>::: rmq_client.Producer</p>", "shows Markdown: ':::'"),
    ],
)
def test_a_mistake_is_found(body: str, problem: str, tmp_path: Path) -> None:
    (found,) = _problems(tmp_path, index=body)
    assert found.startswith("index.html: ")
    assert problem in found


def test_a_page_needs_a_title_and_a_heading(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>Text</p>")
    assert list(problems(tmp_path)) == [
        "index.html: has no title",
        "index.html: has no heading of the first level",
    ]


def test_a_page_that_no_link_leads_to_is_found(tmp_path: Path) -> None:
    assert _problems(tmp_path, index="", lonely="") == ["lonely.html: no link leads to it from index.html"]


def test_a_folder_without_a_site_is_a_problem(tmp_path: Path) -> None:
    assert list(problems(tmp_path)) == [f"{tmp_path}: has no index.html"]
