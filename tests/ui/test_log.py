"""The page Log: a live tail, places in the log, one record and two, writing one."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.http.api import Api
from tests.http.process import ServerProcess
from tests.ui import axe, hostile, pages
from tests.ui.conftest import OpenPage
from tests.ui.problems import Problems

MANY = 3000


@pytest.fixture(scope="module", autouse=True)
def topics(seed: Api) -> None:
    """Topics with records."""
    records = [
        {"data": {"n": n, "even": n % 2 == 0}, "tag": f"t{n % 3}"} for n in range(1, MANY + 1)
    ]
    done(seed.json("POST", "/v0/topics/visits", {"records": records}))


def done(reply: httpx.Response) -> None:
    """A call that worked, whether or not it made the topic."""
    assert reply.status_code in (200, 201), reply.text


def write(seed: Api, topic: str, values: list[object]) -> None:
    """Write records without tags."""
    records = [{"data": value} for value in values]
    done(seed.json("POST", f"/v0/topics/{topic}", {"records": records}))


def rows(page: Page) -> Locator:
    """The rows that are drawn."""
    return page.locator(".log-rows tbody tr:not([aria-hidden])")


def status(page: Page) -> Locator:
    """What the page says of itself."""
    return page.locator(".log-status")


def opened(open_page: OpenPage, path: str, *, phone: bool = False) -> Page:
    """A page with its records."""
    page = open_page(path, phone=phone)
    pages.wait(page)
    expect(rows(page).first).to_be_visible()
    return page


def test_records_appear_as_they_are_written(open_page: OpenPage, seed: Api) -> None:
    write(seed, "live", [{"first": True}])
    page = opened(open_page, "/ui/log/live")
    expect(rows(page)).to_have_count(1)
    write(seed, "live", [{"second": True}, {"third": True}])
    expect(rows(page)).to_have_count(3)
    expect(rows(page).last).to_contain_text('{"third":true}')
    page.keyboard.press("f")
    expect(status(page)).to_have_text("Stopped at the newest record")
    write(seed, "live", [{"fourth": True}])
    page.keyboard.press("f")
    expect(rows(page)).to_have_count(4)
    axe.check(page)


def test_a_reader_that_is_far_behind_skips_and_says_so(open_page: OpenPage, seed: Api) -> None:
    write(seed, "burst", [0])
    page = opened(open_page, "/ui/log/burst")
    page.keyboard.press("f")
    expect(status(page)).to_contain_text("Stopped")
    for _ in range(2):
        write(seed, "burst", [{"n": n} for n in range(4000)])
    page.keyboard.press("f")
    foot = page.locator(".log-card .list-foot")
    expect(foot).to_contain_text("skipped to keep up")
    expect(rows(page).last).to_contain_text("8,001")
    found = re.search(r"([\d,]+) skipped", foot.inner_text())
    assert found is not None
    page.locator(".log-frame").evaluate("(frame) => frame.scrollTo(0, 0)")
    expect(status(page)).to_contain_text("Stopped")


def test_jumping_to_a_seq_and_to_a_time(open_page: OpenPage, seed: Api) -> None:
    page = opened(open_page, "/ui/log/visits")
    expect(rows(page).last).to_contain_text("3,000")
    jump = page.get_by_label("Jump to seq or time")
    page.keyboard.press("/")
    expect(jump).to_be_focused()
    jump.fill("1500")
    jump.press("Enter")
    expect(page.locator("tr.marked")).to_contain_text('"n":1500')
    expect(page.locator("tr.marked")).to_be_in_viewport()
    assert page.url.endswith("/ui/log/visits?seq=1500")
    jump.fill("nonsense")
    expect(page.locator(".log-tools")).to_contain_text(
        "Not a seq or a time: try 1204, 14:03 or 10m"
    )
    jump.fill("1h")
    jump.press("Enter")
    expect(page.locator("tr.marked")).to_contain_text('"n":1,')
    page.get_by_role("button", name="Follow").click()
    expect(rows(page).last).to_contain_text('"n":3000')
    assert page.url.endswith("/ui/log/visits")
    page.go_back()
    expect(page.locator("tr.marked")).to_contain_text('"n":1500')


def test_places_where_nothing_is(open_page: OpenPage, seed: Api) -> None:
    """Behind the head, before the first that is kept, and among records that were deleted."""
    done(seed.put("capped", cap_records=100))
    write(seed, "capped", [*range(1000)])
    foot = ".log-card .list-foot"
    page = opened(open_page, "/ui/log/capped?seq=99999")
    expect(page.locator(foot)).to_contain_text("60 rows here · the topic has seqs 901 to 1,000")
    pages.go(page, "/ui/log/capped?seq=5")
    expect(rows(page).first).to_contain_text("901")
    write(seed, "holes", [0])
    records = [{"data": n, "tag": "kept" if n % 100 == 0 else "gone"} for n in range(3000)]
    done(seed.json("POST", "/v0/topics/holes", {"records": records}))
    done(seed.json("POST", "/v0/topics/holes/delete", {"match": "gone"}))
    pages.go(page, "/ui/log/holes")
    expect(page.locator(foot)).to_contain_text("31 rows here")


def test_scrolling_reads_on_at_both_ends(open_page: OpenPage) -> None:
    page = opened(open_page, "/ui/log/visits?seq=1500")
    frame = page.locator(".log-frame")
    foot = page.locator(".log-card .list-foot")
    expect(foot).to_contain_text("360 rows here")
    frame.evaluate("(one) => one.scrollTo(0, 0)")
    expect(foot).to_contain_text("660 rows here")
    frame.evaluate("(one) => one.scrollTo(0, one.scrollHeight)")
    expect(foot).to_contain_text("960 rows here")
    expect(rows(page).first).to_be_attached()
    assert rows(page).count() < 100, "only rows near the view are drawn"


def test_a_filter_by_tag_looks_back_and_forward(open_page: OpenPage, seed: Api) -> None:
    page = opened(open_page, "/ui/log/visits?tag=t1")
    for tag in page.locator("td.tag").all_inner_texts():
        assert tag == "t1"
    done(seed.json("POST", "/v0/topics/visits", {"records": [{"data": "other", "tag": "t2"}]}))
    done(seed.json("POST", "/v0/topics/visits", {"records": [{"data": "mine", "tag": "t1"}]}))
    expect(rows(page).last).to_contain_text('"mine"')
    page.get_by_label("Only records with this tag").fill("none*")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".log-note")).to_contain_text("No record with the tag “none*” here")
    page.get_by_role("button", name="All tags").click()
    expect(rows(page).last).to_be_visible()


def test_one_record_and_what_differs_from_another(open_page: OpenPage) -> None:
    page = opened(open_page, "/ui/log/visits?seq=10")
    expect(page.locator("tr.marked")).to_be_visible()
    for key in ("Enter", "x", "j", "x"):
        page.keyboard.press(key)
    panel = page.get_by_role("region", name="Record 11")
    expect(panel).to_contain_text("n: 11")
    page.keyboard.press("c")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Records 10 and 11")
    expect(dialog.locator("tr.removed").first).to_contain_text("t1")
    axe.check(page)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(panel).to_have_count(0)


def test_a_record_is_appended_and_what_was_typed_is_kept(open_page: OpenPage, seed: Api) -> None:
    write(seed, "byhand", [0])
    page = opened(open_page, "/ui/log/byhand")
    page.keyboard.press("n")
    data = page.get_by_label("Data", exact=True)
    data.fill('{"a": 9007199254740993,')
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Line 1")
    expect(dialog.get_by_role("button", name="Append the record")).to_be_disabled()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(data).to_have_value('{"a": 9007199254740993,')
    data.fill('{"a": 9007199254740993}')
    dialog.get_by_label("Tag").fill("hand")
    dialog.get_by_role("button", name="Append the record").click()
    expect(rows(page).last).to_contain_text("9007199254740993")
    expect(rows(page).last).to_contain_text("hand")


def test_hostile_records_are_text(open_page: OpenPage, seed: Api) -> None:
    write(seed, "hostile", [0])
    for data in hostile.VALUES.values():
        hostile.append(seed, "hostile", hostile.record(data, tag=hostile.TAG, node=hostile.NODE))
    page = opened(open_page, "/ui/log/hostile?seq=2")
    expect(rows(page)).to_have_count(1 + len(hostile.VALUES))
    for at, name in enumerate(hostile.VALUES, 2):
        rows(page).nth(at - 1).locator("td.data").click()
        panel = page.get_by_role("region", name=f"Record {at}", exact=True)
        expect(panel.locator(".json"), name).to_be_visible()
    assert page.title() != "owned"
    assert page.evaluate("() => ({}).polluted") is None
    assert page.locator("main img, main script").count() == 0
    pages.check_width(opened(open_page, "/ui/log/hostile?seq=2", phone=True))


def test_a_topic_that_is_not_there_and_one_that_goes(
    open_page: OpenPage, seed: Api, problems: Problems
) -> None:
    problems.expect("404")
    page = open_page("/ui/log/soon")
    main = page.locator("main")
    expect(main).to_contain_text("There is no topic of this name")
    write(seed, "soon", [1])
    page.get_by_role("button", name="Look again").click()
    expect(rows(page)).to_have_count(1)
    done(seed.delete_topic("soon"))
    expect(status(page)).to_have_text("The topic was deleted")


def test_the_list_of_topics(open_page: OpenPage) -> None:
    page = open_page("/ui/log", dark=True)
    expect(page.get_by_role("link", name="visits")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("vis")
    expect(page.locator("tbody tr")).to_have_count(1)
    axe.check(page)
    page.get_by_role("link", name="visits").click()
    expect(rows(page).first).to_be_visible()
    axe.check(page, colours_only=True)


def test_the_tail_survives_the_server(
    open_page: OpenPage, server: ServerProcess, seed: Api, problems: Problems
) -> None:
    """It says that the connection is lost, and goes on where it was."""
    problems.expect(r"ERR_|/v0/stats/stream|503")
    done(seed.put("durable", durability="fsync"))
    write(seed, "durable", ["before"])
    page = opened(open_page, "/ui/log/durable")
    server.kill()
    expect(status(page)).to_contain_text("Connection lost, trying again")
    server.flags += ["--port", str(server.port)]
    server.start()
    with Api(server.base_url) as api:
        write(api, "durable", ["after"])
    expect(rows(page)).to_have_count(2)
    expect(rows(page).last).to_contain_text("after")
