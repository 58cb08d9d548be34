"""The reference at /docs, and the tools that all tests of pages are made with."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.ui import axe
from tests.ui.conftest import OpenPage
from tests.ui.problems import Problems


def test_the_vendored_tool_is_the_one_in_the_table() -> None:
    assert axe.digest() == axe.AXE.sha256, "replace it together with its line in the table"
    assert (axe.VENDOR / "axe-LICENSE.txt").read_text(encoding="utf-8").startswith("Mozilla Public")


def test_the_reference_is_accessible(open_page: OpenPage) -> None:
    page = open_page("/docs")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    axe.thin(page, "section", "nav li")
    axe.check(page)
    page.emulate_media(color_scheme="dark")
    axe.check(page, colours_only=True)


def test_problems_are_found(page: Page, problems: Problems) -> None:
    """Whatever a page does wrong, a test of it fails."""
    problems.expect("")
    page.goto("/docs")
    page.evaluate("() => { setTimeout(() => { throw new Error('thrown') }); }")
    page.evaluate("() => console.error('said')")
    page.evaluate("() => document.body.setAttribute('style', 'color: red')")
    page.goto("/nowhere")
    text = "\n".join(problems.found)
    for part in ("thrown", "said", "Content Security Policy", "status 404"):
        assert part in text, text
