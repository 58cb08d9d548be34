"""A server with keys: asked for once, never kept elsewhere; what a key may not do is not shown."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.http.api import Api
from tests.http.expect import ok
from tests.ui import pages
from tests.ui.conftest import KEY_NAME, OpenPage
from tests.ui.problems import Problems

KEYS = "full,reader:read,tenant::mine."


@pytest.fixture(scope="module")
def server_key() -> str:
    """A key for everything."""
    return "full"


@pytest.fixture(scope="module")
def server_settings() -> dict[str, str]:
    """One for everything, one that only reads, one for a prefix."""
    return {"API_KEYS": KEYS}


@pytest.fixture(scope="module", autouse=True)
def topics(seed: Api) -> None:
    """Some of a tenant, some of others."""
    for name in ("mine.mail", "theirs.mail"):
        seed.make_log(f"{name}.dead")
        seed.make_queue(name, dead_letter=f"{name}.dead")
        seed.append(name, "secret of " + name, 2, 3)
        seed.claimed(name, f"worker of {name}", max=2, lease_ms=3_600_000)
        seed.reject(name, [1], f"worker of {name}", error=f"failed in {name}")
        schedule = {"topic": name, "every_ms": 86_400_000, "record": {"data": "secret"}}
        ok(seed.json("PUT", f"/v0/schedules/{name}", schedule), 201)
        ok(seed.json("POST", "/v0/batches", {"name": name}), 201)


def test_the_key_is_asked_for_once(page: Page, problems: Problems) -> None:
    problems.expect("401")
    page.goto("/ui/")
    dialog = page.get_by_role("dialog", name="API key")
    expect(dialog).to_be_visible()
    dialog.get_by_label("Key").fill("wrong")
    dialog.get_by_role("button", name="Continue").click()
    expect(dialog.get_by_role("alert")).to_contain_text("does not know this key")
    dialog.get_by_label("Key").fill("full")
    dialog.get_by_role("button", name="Continue").click()
    expect(pages.cell(page, "mine.mail", "Ready")).to_have_text("1")
    page.reload()
    expect(pages.cell(page, "mine.mail", "Ready")).to_have_text("1")
    assert page.context.cookies() == []
    kept = page.evaluate("() => JSON.stringify({...localStorage}) + location.href")
    assert "full" not in kept, "a key is kept in sessionStorage alone"
    assert page.evaluate("(name) => sessionStorage.getItem(name)", KEY_NAME) == '"full"'


CHANGES = re.compile(
    r"(Pause|Resume|New queue|Purge|Edit|Append|Enqueue|Retry|Cancel|Delay|Hold|Release|Redrive"
    r"|Drop|Return|Create|Set|Run|New schedule|Delete|Prioritize|Close the batch)\b"
)
"""How the buttons begin that change something."""


@pytest.mark.parametrize(
    "path",
    [
        "/ui/",
        "/ui/queues/mine.mail",
        "/ui/queues/mine.mail/jobs",
        "/ui/queues/mine.mail/jobs/2",
        "/ui/dead-letters",
        "/ui/workers",
        "/ui/schedules",
        "/ui/schedules?schedule=mine.mail",
        "/ui/batches?batch=mine.mail",
        "/ui/log/mine.mail.dead",
        "/ui/server",
    ],
)
def test_a_key_that_only_reads_is_offered_no_change(open_page: OpenPage, path: str) -> None:
    page = open_page(path, key="reader")
    pages.wait_live(page)
    offered = page.locator("main").get_by_role("button").all_inner_texts()
    assert not [text for text in offered if CHANGES.match(text.strip())]


def test_a_key_for_a_prefix_sees_nothing_of_others(open_page: OpenPage) -> None:
    page = open_page("/ui/", key="tenant")
    expect(pages.cell(page, "mine.mail", "Ready")).to_have_text("1")
    for path in (
        "/ui/",
        "/ui/dead-letters",
        "/ui/workers",
        "/ui/schedules",
        "/ui/batches",
        "/ui/log",
        "/ui/server",
    ):
        pages.go(page, path)
        pages.wait_live(page)
        assert "theirs" not in page.locator("body").inner_text()


def test_what_a_key_may_not_see_is_refused_in_words(
    open_page: OpenPage, problems: Problems
) -> None:
    problems.expect("40[34]")
    page = open_page("/ui/queues/theirs.mail", key="tenant")
    pages.wait_live(page)
    expect(page.locator("main")).to_contain_text("theirs.mail")
    assert "secret" not in page.locator("body").inner_text()
