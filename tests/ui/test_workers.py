"""The page of workers: who holds what, and returning what a dead one holds."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.http.api import Api
from tests.http.expect import ok
from tests.ui.conftest import OpenPage
from tests.ui.pages import wait, wait_live

EVIL = '<img src=x onerror="document.title=1">'


@pytest.fixture(scope="module", autouse=True)
def crew(seed: Api) -> None:
    """Workers at two queues, one of them with a hostile name."""
    for queue in ("mails", "thumbs"):
        ok(seed.put(queue, type="queue", lease_ms=3_600_000), 201)
        seed.append_many(queue, [{"data": n} for n in range(40)])
    for node, queue, jobs in (("a-1", "mails", 3), ("a-1", "thumbs", 2), (EVIL, "mails", 1)):
        ok(seed.claim(queue, node=node, max=jobs))
    ok(seed.claim("thumbs", node="b-2", max=5))
    ok(seed.json("POST", "/v0/topics/thumbs/ack", {"node": "b-2", "seqs": [3, 4, 5, 6, 7]}))


def row(page: Page, name: str) -> Locator:
    """The row of a worker."""
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def test_who_works_on_what(page: Page) -> None:
    page.goto("/ui/workers")
    expect(page.get_by_role("row")).to_have_count(4)
    first = row(page, "a-1")
    expect(first).to_contain_text("Working")
    expect(first.get_by_role("link", name="mails")).to_have_attribute("href", "/ui/queues/mails")
    expect(first.get_by_role("cell").nth(3)).to_have_text("5")
    expect(row(page, "b-2")).to_contain_text("Idle")
    expect(row(page, EVIL)).to_be_visible()
    page.get_by_role("button", name=re.compile("^Idle")).click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"\?state=idle$"))


def test_the_workers_of_one_queue(page: Page) -> None:
    """As the overview links to them."""
    page.goto("/ui/workers?queue=mails")
    expect(row(page, "a-1").get_by_role("cell").nth(3)).to_have_text("3")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("button", name="show all queues").click()
    expect(page.locator("tbody tr")).to_have_count(3)


def test_a_worker_is_opened_by_keys(page: Page) -> None:
    page.goto("/ui/workers?sort=node")
    expect(row(page, "a-1")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("A-1")
    page.keyboard.press("Enter")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("a-1")
    jobs = page.get_by_role("table", name="Jobs in hand")
    expect(jobs.locator("tbody tr")).to_have_count(5)
    expect(jobs.get_by_role("link").first).to_have_attribute(
        "href", re.compile("/ui/queues/(mails|thumbs)/jobs/1$")
    )


def test_what_a_worker_holds_is_returned(page: Page, seed: Api) -> None:
    """The count is asked for first; nothing happens without a yes."""
    ok(seed.claim("mails", node="dead-7", max=4))
    ok(seed.claim("thumbs", node="dead-7", max=2))
    before = ok(seed.state("mails"))["queue"]["in_flight"]
    page.goto("/ui/workers?node=dead-7")
    wait_live(page)
    page.get_by_role("button", name="Return 6 jobs…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("6 jobs of 2 queues")
    expect(dialog).to_contain_text("they run twice")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert ok(seed.state("mails"))["queue"]["in_flight"] == before
    page.get_by_role("button", name="Return 6 jobs…").click()
    page.get_by_role("button", name="Return 6 jobs", exact=True).click()
    expect(page.get_by_text("6 jobs of dead-7 returned")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Return"))).to_have_count(0)
    assert ok(seed.state("mails"))["queue"]["in_flight"] == before - 4


def test_a_worker_that_was_never_seen(page: Page) -> None:
    page.goto("/ui/workers?node=c-3")
    expect(page.get_by_text("was seen since the server started")).to_be_visible()
    page.get_by_role("link", name="All workers").click()
    expect(row(page, "a-1")).to_be_visible()


def test_it_fits_a_phone(open_page: OpenPage) -> None:
    page = open_page("/ui/workers", phone=True)
    wait(page)
    expect(row(page, "a-1")).to_be_visible()
