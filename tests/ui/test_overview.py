"""The overview: what is wrong, every queue in one table, and what is done from there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.http.api import Api
from tests.http.expect import ok
from tests.ui.conftest import OpenPage
from tests.ui.pages import check_width, wait_live

TOPICS = 300
"""Far more than fit on a screen."""


@pytest.fixture(autouse=True)
def no_topics(seed: Api) -> Iterator[None]:
    """Each test begins on an empty server."""
    yield
    for entry in ok(seed.topics(page_size=1000))["topics"]:
        seed.delete_topic(entry["topic"])


def row(page: Page, name: str) -> Locator:
    """The row of a topic."""
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def test_an_empty_server_says_what_to_do(page: Page) -> None:
    """The lines that it shows work, and what they make appears by itself."""
    page.goto("/ui/")
    lines = page.locator(".command pre").inner_text()
    ran = subprocess.run(["sh", "-e"], input=lines, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    expect(row(page, "mails").get_by_role("cell").nth(2)).to_have_text("1")


def test_a_queue_is_created_from_the_page(page: Page) -> None:
    page.goto("/ui/")
    wait_live(page)
    page.get_by_role("button", name="New queue…").click()
    page.get_by_label("Name").fill("mails")
    page.get_by_label("Name").press("Enter")
    expect(page).to_have_url(re.compile("/ui/queues/mails$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("mails")


def test_queues_are_found_and_opened_by_keys(page: Page, seed: Api) -> None:
    for name in ("alpha", "beta", "betamax", "gamma"):
        ok(seed.put(name, type="queue"), 201)
    page.goto("/ui/")
    expect(row(page, "gamma")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("BETA")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page).to_have_url(re.compile(r"\?q=BETA$"))
    page.keyboard.press("Enter")
    for key in "jjk":
        page.keyboard.press(key)
    expect(row(page, "beta")).to_have_attribute("aria-current", "true")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/ui/queues/beta$"))
    for key in "gq":
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile("/ui/$"))


def test_order_and_pins_stay(page: Page, seed: Api) -> None:
    """The order is in the URL, pins in the browser."""
    for name, jobs in (("alpha", 1), ("beta", 3), ("gamma", 2)):
        ok(seed.put(name, type="queue"), 201)
        seed.append_many(name, [{"data": n} for n in range(jobs)])
    page.goto("/ui/")
    page.get_by_role("button", name="Ready").click()
    names = page.locator("tbody .topic-name a")
    expect(names).to_have_text(["beta", "gamma", "alpha"])
    page.mouse.move(0, 0)
    page.get_by_role("button", name="Pin alpha").click()
    page.mouse.move(0, 0)
    expect(names).to_have_text(["alpha", "beta", "gamma"])
    page.reload()
    expect(names).to_have_text(["alpha", "beta", "gamma"])
    expect(page.get_by_role("columnheader", name="Ready")).to_have_attribute(
        "aria-sort", "descending"
    )


def test_pausing_is_undone(page: Page, seed: Api) -> None:
    ok(seed.put("alpha", type="queue"), 201)
    seed.append_many("alpha", [{"data": 1}])
    page.goto("/ui/")
    row(page, "alpha").hover()
    row(page, "alpha").get_by_role("button", name="Pause").click()
    expect(row(page, "alpha").locator(".mark")).to_have_text("Paused")
    expect(page.get_by_label("What needs attention")).to_contain_text("alpha")
    assert ok(seed.state("alpha"))["config"]["paused"] is True
    page.get_by_role("button", name="Undo").click()
    expect(row(page, "alpha").locator(".mark")).to_have_count(0)
    assert ok(seed.state("alpha"))["config"]["paused"] is False


def test_several_queues_are_paused_together(page: Page, seed: Api) -> None:
    for name in ("alpha", "beta", "gamma"):
        ok(seed.put(name, type="queue"), 201)
    page.goto("/ui/")
    expect(row(page, "gamma")).to_be_visible()
    for key in "jxjx":
        page.keyboard.press(key)
    page.get_by_role("status").get_by_role("button", name="Pause").click()
    expect(page.locator("tbody .mark")).to_have_text(["Paused", "Paused"])
    assert [ok(seed.state(name))["config"]["paused"] for name in ("alpha", "beta", "gamma")] == [
        True,
        True,
        False,
    ]


def test_numbers_follow_the_server(page: Page, seed: Api) -> None:
    ok(seed.put("alpha", type="queue"), 201)
    page.goto("/ui/")
    ready = row(page, "alpha").get_by_role("cell").nth(2)
    expect(ready).to_have_text("0")
    seed.append_many("alpha", [{"data": n} for n in range(1234)])
    expect(ready).to_have_text("1,234")
    seed.delete_topic("alpha")
    expect(row(page, "alpha")).to_have_count(0)


def test_many_topics(page: Page, open_page: OpenPage, seed: Api) -> None:
    """Only the rows near the screen are drawn, and each is reached."""
    for n in range(TOPICS):
        seed.put(f"queue-{n:04}", type="queue", durability="memory")
    page.goto("/ui/")
    expect(row(page, "queue-0000")).to_be_visible()
    assert page.locator("tbody tr").count() < 100
    expect(page.get_by_role("table", name="Queues")).to_have_attribute(
        "aria-rowcount", f"{TOPICS + 1}"
    )
    page.keyboard.press("End")
    expect(row(page, f"queue-{TOPICS - 1:04}")).to_be_visible()
    assert page.locator("tbody tr").count() < 100
    page.keyboard.press("/")
    page.keyboard.type("0200")
    expect(page.locator("tbody tr")).to_have_count(1)
    phone = open_page("/ui/", phone=True)
    expect(row(phone, "queue-0000")).to_be_visible()
    check_width(phone)


def test_a_tab_in_the_background_holds_no_connection(open_page: OpenPage, seed: Api) -> None:
    """Browsers open six to one server: a few tabs would stop all others."""
    ok(seed.put("alpha", type="queue"), 201)
    page = open_page(own=True)  # its clock is that of all pages of its context
    page.clock.install()
    page.goto("/ui/")
    expect(row(page, "alpha")).to_be_visible()
    show = """(isHidden) => {
      Object.defineProperty(document, "hidden", {value: isHidden, configurable: true});
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    with page.expect_event("requestfailed", lambda one: "/v0/stats/stream" in one.url):
        page.evaluate(show, True)
        page.clock.fast_forward(11_000)
    seed.append("alpha", 1)
    with page.expect_request("**/v0/stats/stream"):
        page.evaluate(show, False)
    expect(row(page, "alpha").get_by_role("cell").nth(2)).to_have_text("1")


def test_dead_letters_of_several_queues_are_found(page: Page, seed: Api) -> None:
    """An entry about a topic that queues share leads to all of them."""
    for name in ("alpha", "beta"):
        ok(seed.put(name, type="queue", dead_letter="shared.dead"), 201)
    ok(seed.put("gamma", type="queue", dead_letter="gamma.dead"), 201)
    for name in ("shared.dead", "gamma.dead"):
        ok(seed.put(name), 201)
        seed.append(name, 1)
    page.goto("/ui/")
    attention = page.get_by_label("What needs attention")
    places = attention.get_by_role("link", name=re.compile("^Show them"))
    expect(places).to_have_count(2)
    found = {place.get_attribute("href") for place in places.all()}
    assert found == {"/ui/dead-letters", "/ui/dead-letters?queue=gamma"}
