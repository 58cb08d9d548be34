"""What holds for every page: accessible in both themes and on a phone, no wider than its window."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests import house
from tests.http.api import Api
from tests.http.expect import Json, ok
from tests.ui import axe, pages
from tests.ui.conftest import PHONE, OpenPage

LOADED_BYTES_MAX = 150_000
"""On a first visit, compressed, whatever page it is."""


@pytest.fixture(scope="module", autouse=True)
def topics(seed: Api) -> None:
    """Something of everything: jobs in each state, a dead letter, a worker, a log, a router."""
    seed.make_log("mail.dead")
    seed.make_log("mail.done")
    seed.make_queue(
        pages.QUEUE,
        max_deliveries=5,
        dead_letter="mail.dead",
        archive="mail.done",
        claim_rate={"per_s": 1000, "burst": 1000},
    )
    seed.make_queue("payments", paused=True)
    seed.make_queue("imports", on_exhausted="hold", max_deliveries=1)
    seed.make_queue("empty")
    seed.make_log(pages.LOG)
    seed.append("payments", *({"order": order} for order in range(20)))
    seed.append("imports", {"file": "a.csv"})
    seed.append_many(
        pages.QUEUE,
        [{"data": {"to": f"{n}@example.com"}, "tag": f"mail.{n % 3}"} for n in range(30)],
    )
    seed.append_many(pages.QUEUE, [{"data": {"to": "later"}, "delay_ms": 3_600_000}])
    seed.claimed(pages.QUEUE, "mailer-1", max=8, lease_ms=3_600_000)
    seed.nack(pages.QUEUE, [1], "mailer-1", error="SMTP 421: try again later", delay_ms=0)
    seed.ack(pages.QUEUE, [2, 3], "mailer-1")
    seed.reject(pages.QUEUE, [4, 5], "mailer-1", error="SMTP 550: no such mailbox")
    seed.claimed("imports", "importer")
    seed.nack("imports", [1], "importer", error="line 4711: 'price' is not a number")
    seed.append_many(pages.LOG, [{"data": {"page": f"/{n}"}, "tag": "visit"} for n in range(40)])
    seed.make_router("visits-to-search", pages.LOG, "search")
    schedule: Json = {"topic": pages.QUEUE, "cron": "0 3 * * *", "timezone": "Europe/Berlin"}
    schedule |= {"record": {"data": {"to": "all"}}}
    ok(seed.json("PUT", "/v0/schedules/nightly", schedule), 201)
    ok(seed.json("POST", "/v0/batches", {"name": "import"}), 201)
    seed.append_many("payments", [{"data": n, "batch": "import"} for n in range(3)])


@pytest.mark.parametrize("path", pages.PATHS.values(), ids=pages.PATHS.keys())
def test_it_is_accessible_in_both_themes_and_on_a_phone(open_page: OpenPage, path: str) -> None:
    page = open_page(path, own=True)
    pages.wait_live(page)
    assert 10_000 < pages.loaded_bytes(page) <= LOADED_BYTES_MAX
    assert page.locator("main h1").count() == 1
    axe.check(page)
    page.emulate_media(color_scheme="dark")
    axe.check(page, colours_only=True)
    pages.check_width(page)
    page.set_viewport_size(PHONE)
    pages.check_width(page)
    axe.check(page)


@pytest.mark.parametrize("path", pages.PATHS.values(), ids=pages.PATHS.keys())
def test_it_fits_windows_of_any_width(page: Page, path: str) -> None:
    page.goto(path)
    pages.wait_live(page)
    for width in (320, 600, 768, 1024, 1920):
        page.set_viewport_size({"width": width, "height": 800})
        pages.check_width(page)


def test_every_key_is_documented(page: Page) -> None:
    text = house.page("docs/dashboard.md")
    page.goto("/ui/")
    pages.wait_live(page)
    found = set()
    for path in pages.PATHS.values():
        pages.go(page, path)
        pages.wait_live(page)
        page.keyboard.press("?")
        help_dialog = page.get_by_role("dialog", name="Keys")
        expect(help_dialog).to_be_visible()
        for key in help_dialog.locator("dt").all():
            words = " ".join(key.locator("kbd").all_inner_texts())
            found.add((words, key.locator("xpath=following-sibling::dd").inner_text(), path))
        page.keyboard.press("Escape")
        expect(help_dialog).to_have_count(0)
    assert len(found) > 15
    undocumented = {one for one in found if f"`{one[0].strip() or 'Space'}`" not in text}
    assert not undocumented, sorted(undocumented)
