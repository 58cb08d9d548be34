"""Hostile data, names and errors: text on every page, and no page breaks."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.http.api import Api
from tests.http.expect import ok
from tests.ui import hostile, pages
from tests.ui.conftest import DESKTOP, PHONE

QUEUE = "hostile"
LOG = "hostile.log"
SEQS: dict[str, int] = {}
"""Jobs by what is wrong with their data."""

PATHS = {
    "overview": "/ui/",
    "queue": f"/ui/queues/{hostile.LONG_NAME}",
    "jobs": f"/ui/queues/{QUEUE}/jobs",
    "jobs of the long name": f"/ui/queues/{hostile.LONG_NAME}/jobs",
    "dead letters": "/ui/dead-letters",
    "workers": "/ui/workers",
    "log": f"/ui/log/{LOG}",
    "server": "/ui/server",
}
SAYS_MARKUP = {"jobs", "dead letters", "workers", "log"}
"""Pages on which the markup itself must be read as text."""


@pytest.fixture(scope="module", autouse=True)
def topics(seed: Api) -> None:
    """All of it, in every place where there can be text of users."""
    seed.make_log(LOG)
    seed.make_log(f"{QUEUE}.dead")
    seed.make_queue(QUEUE, dead_letter=f"{QUEUE}.dead", max_deliveries=3)
    seed.make_queue(hostile.LONG_NAME)
    members = {"tag": hostile.TAG, "node": hostile.NODE, "meta": {hostile.MARKUP: hostile.EMOJI}}
    first = hostile.append(seed, QUEUE, *(hostile.record('"dead"', **members) for _ in range(3)))
    assert len(seed.claimed(QUEUE, hostile.NODE, max=3, lease_ms=3_600_000)) == 3
    ok(seed.nack(QUEUE, first[:1], hostile.NODE, error=hostile.LINES, delay_ms=3_600_000))
    ok(seed.reject(QUEUE, first[1:2], hostile.NODE, error=hostile.MARKUP))
    for name, text in hostile.VALUES.items():
        one = hostile.record(text, **members, key=f"{hostile.KEY} {name}")
        (SEQS[name],) = hostile.append(seed, QUEUE, one)
        hostile.append(seed, LOG, hostile.record(text, **members))
        hostile.append(seed, hostile.LONG_NAME, hostile.record(text))


def check(page: Page) -> None:
    """Nothing of it was run, nothing of it became markup."""
    assert "owned" not in page.title()
    assert page.locator("img[src=x], main script, a[href^='javascript:']").count() == 0
    assert page.evaluate("() => ({}).polluted === undefined && document.title !== 'owned'")


def check_layout(page: Page) -> None:
    """No page is wider than its window."""
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        pages.check_width(page)


@pytest.mark.parametrize("name", PATHS)
def test_a_page_shows_it_as_text(page: Page, name: str) -> None:
    page.goto(PATHS[name])
    pages.wait_live(page)
    if name in SAYS_MARKUP:
        expect(page.get_by_text("<img src=x").first).to_be_visible()
    check_layout(page)
    check(page)


SHOWN = {
    "markup": "<img src=x onerror=",
    "turned": "gnp.exe",
    "emoji": hostile.EMOJI.split(" ", maxsplit=1)[0],
    "prototype": "__proto__",
    "numbers": hostile.EXACT,
    "number": hostile.EXACT,
    "text": "just text, no object",
    "null": "null",
}
"""What must be read on the page of a job: numbers with all of their digits."""


def test_the_page_of_a_job_shows_it_as_text(page: Page) -> None:
    page.goto(f"/ui/queues/{QUEUE}/jobs/{SEQS['text']}")
    pages.wait_live(page)
    for name, seq in SEQS.items():
        page.set_viewport_size(DESKTOP)
        pages.go(page, f"/ui/queues/{QUEUE}/jobs/{seq}")
        expect(page.locator("main h1")).to_contain_text(str(seq))
        if name in SHOWN:
            expect(page.get_by_text(SHOWN[name]).first, name).to_be_visible()
        assert len(page.locator("main").inner_text()) < 200_000, f"{name}: all of it at once"
        check_layout(page)
        check(page)
    assert hostile.LONG_FRACTION in page_of_numbers(page)


def page_of_numbers(page: Page) -> str:
    """What the page says of data that is all numbers."""
    pages.go(page, f"/ui/queues/{QUEUE}/jobs/{SEQS['numbers']}")
    expect(page.get_by_text(f"-{hostile.EXACT}").first).to_be_visible()
    return page.locator("main").inner_text()
