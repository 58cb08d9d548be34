"""What operators do, from the first visit on: each test is one story, all on one server."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.http.api import Api
from tests.http.expect import ok
from tests.http.process import ServerProcess
from tests.ui import pages
from tests.ui.conftest import OpenPage
from tests.ui.problems import Problems


def test_a_job_is_seen_from_its_append_to_its_end(page: Page, seed: Api) -> None:
    """Live: nothing is loaded again."""
    seed.make_queue("orders")
    page.goto("/ui/")
    expect(pages.cell(page, "orders", "Ready")).to_have_text("0")
    seed.append("orders", 1, 2, 3)
    expect(pages.cell(page, "orders", "Ready")).to_have_text("3")
    seed.claimed("orders", "packer-1", max=2)
    expect(pages.cell(page, "orders", "In flight")).to_have_text("2")
    expect(pages.cell(page, "orders", "Ready")).to_have_text("1")
    expect(pages.cell(page, "orders", "Workers")).to_have_text("1")
    ok(seed.ack("orders", [1, 2], "packer-1"))
    expect(pages.cell(page, "orders", "In flight")).to_have_text("0")


def test_two_operators_see_what_the_other_does(open_page: OpenPage, seed: Api) -> None:
    seed.make_queue("shared")
    one, other = open_page("/ui/"), open_page("/ui/")
    for page in (one, other):
        expect(pages.row(page, "shared")).to_be_visible()
    pages.row(one, "shared").get_by_role("button", name="Pause").click()
    expect(pages.row(other, "shared").get_by_text("Paused")).to_be_visible()
    pages.row(other, "shared").get_by_role("button", name="Resume").click()
    expect(pages.row(one, "shared").get_by_text("Paused")).to_have_count(0)
    assert not ok(seed.state("shared"))["config"].get("paused")


@pytest.mark.parametrize("path", ["/ui/nothing", "/ui/queues/absent", "/ui/queues/absent/jobs/1"])
def test_a_place_that_is_not_there_says_so(page: Page, problems: Problems, path: str) -> None:
    problems.expect("404")
    page.goto(path)
    pages.wait_live(page)
    expect(page.locator("main")).to_contain_text(
        re.compile(r"no (such|page|queue|job)|not exist", re.I)
    )


def test_the_server_dies_under_the_page_and_comes_back(
    page: Page, server: ServerProcess, seed: Api, problems: Problems
) -> None:
    """It says so, keeps the last numbers, reconnects by itself, and then has the right ones."""
    problems.expect(r"ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY_RESPONSE|/v0/stats/stream|status 503")
    seed.make_queue("durable", durability="fsync")
    seed.append("durable", *range(5))
    page.goto("/ui/")
    expect(pages.cell(page, "durable", "Ready")).to_have_text("5")
    server.kill()
    away = page.get_by_role("status").filter(has_text="The server has been away")
    expect(away).to_be_visible()
    expect(away).to_contain_text(re.compile(r"for \d+"))
    expect(pages.cell(page, "durable", "Ready")).to_have_text("5")
    pages.row(page, "durable").get_by_role("button", name="Pause").click()
    expect(page.get_by_text("durable is not paused")).to_be_visible()
    server.flags += ["--port", str(server.port)]
    server.start()
    expect(away).to_have_count(0)
    with Api(server.base_url) as api:
        api.append("durable", 6)
        expect(pages.cell(page, "durable", "Ready")).to_have_text("6")
