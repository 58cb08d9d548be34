"""The page of a queue's jobs: finding some of many, and doing the same to all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.http.api import Api
from tests.http.expect import ok
from tests.ui.conftest import OpenPage
from tests.ui.pages import wait_live


@pytest.fixture
def queue(seed: Api, request: pytest.FixtureRequest) -> str:
    """A queue of this test's own, with 300 jobs: 3 in flight, 2 held, 10 delayed."""
    name = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_"))
    ok(seed.put(name, type="queue", on_exhausted="hold", lease_ms=600_000), 201)
    records = [{"data": {"user": f"user{n}@example.com"}, "tag": f"t{n % 3}"} for n in range(290)]
    seed.append_many(name, records)
    late = {"data": {"late": True}, "delay_ms": 3_600_000, "tag": "late"}
    seed.append_many(name, [late] * 10)
    claimed = seed.claimed(name, node="w1", max=5)
    rejected = {
        "node": "w1",
        "seqs": [job["$seq"] for job in claimed[:2]],
        "error": "no space\nat x",
    }
    ok(seed.json("POST", f"/v0/topics/{name}/reject", rejected))
    return name


def open_jobs(page: Page, queue: str, query: str = "") -> Locator:
    """Show the jobs of a queue; their table, with its first rows."""
    page.goto(f"/ui/queues/{queue}/jobs{query}")
    wait_live(page)
    return page.get_by_role("table")


def test_jobs_are_found_by_their_filters_which_are_in_the_url(page: Page, queue: str) -> None:
    table = open_jobs(page, queue)
    expect(page.get_by_text("loaded, more as you scroll")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("user217@")
    expect(page).to_have_url(re.compile(r"text=user217%40"))
    expect(table.get_by_role("link", name="218", exact=True)).to_be_visible()
    expect(page.get_by_text("1 job, all loaded")).to_be_visible()
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_role("button", name="Held 2").click()
    expect(page).to_have_url(re.compile(r"\?state=held$"))
    expect(table.get_by_text("no space")).to_have_count(2)
    page.get_by_label("Tag", exact=True).fill("none")
    expect(page.get_by_text("No job is there that fits: held, tag none")).to_be_visible()
    page.get_by_role("button", name="Show all jobs").click()
    expect(page.get_by_text("loaded, more as you scroll")).to_be_visible()
    # A link opens the same again; the row opens its job.
    open_jobs(page, queue, "?state=in_flight&node=w1&min_deliveries=1&min_age_ms=0")
    expect(page.get_by_text("3 jobs, all loaded")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Job 3")).to_be_visible()


def test_any_number_of_jobs_is_loaded_as_one_scrolls(page: Page, queue: str) -> None:
    table = open_jobs(page, queue)
    expect(page.get_by_text("100 jobs loaded")).to_be_visible()
    for text in ("200 jobs loaded", "300 jobs, all loaded"):
        page.keyboard.press("End")
        expect(page.get_by_text(text)).to_be_visible()
    page.keyboard.press("End")
    expect(table.get_by_role("link", name="300", exact=True)).to_be_visible()
    assert table.locator("tbody tr").count() < 120, "only rows near the screen are drawn"


def test_all_that_match_are_held_and_released_again(page: Page, seed: Api, queue: str) -> None:
    open_jobs(page, queue, "?tag=t1")
    hold = page.get_by_role("button", name="Hold…")
    expect(hold).to_be_disabled()
    page.keyboard.press("a")
    expect(page.get_by_text("All jobs that match are selected")).to_be_visible()
    page.keyboard.press("H")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Hold all jobs: tag t1")).to_be_visible()
    # Two of the 97 with this tag are in flight or held already; what comes later stays.
    confirm = dialog.get_by_role("button", name=re.compile(r"^Hold 95 jobs$"))
    expect(confirm).to_be_focused()
    seed.append_many(queue, [{"data": 1, "tag": "t1"}])
    page.keyboard.press("Enter")
    expect(page.get_by_text("95 jobs held")).to_be_visible()
    queued = ok(seed.state(queue))["queue"]
    assert queued["held"] == 97
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Undone: 95 jobs released")).to_be_visible()
    assert ok(seed.state(queue))["queue"]["held"] == 2


def test_a_change_with_a_pace_shows_its_progress_and_can_be_stopped(
    page: Page, seed: Api, queue: str
) -> None:
    open_jobs(page, queue, "?state=ready")
    page.get_by_role("button", name="Select all that match").click()
    page.get_by_role("button", name="Delay…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Not before").fill("2")
    dialog.get_by_label("Unit").select_option("h")
    dialog.get_by_text("Some of them, or slowly").click()
    dialog.get_by_label("At most per second").fill("1")
    dialog.get_by_role("button", name="Delay 285 jobs").click()
    running = page.get_by_label("Changes in progress")
    expect(running.get_by_text(re.compile("Delaying: .* 1 job a second at most"))).to_be_visible()
    running.get_by_role("button", name="Stop").click()
    expect(page.get_by_text(re.compile(r"^Stopped: \d+ jobs? delayed"))).to_be_visible()
    assert 10 < ok(seed.state(queue))["queue"]["delayed"] < 40


def test_selected_jobs_are_cancelled(page: Page, seed: Api, queue: str) -> None:
    table = open_jobs(page, queue, "?tag=late")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_text("2 jobs selected")).to_be_visible()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel 2 jobs").click()
    expect(page.get_by_text("2 jobs cancelled")).to_be_visible()
    expect(table.get_by_role("link", name="291", exact=True)).to_have_count(0)
    # Many must be typed.
    page.keyboard.press("Escape")
    page.goto(f"/ui/queues/{queue}/jobs?state=ready")
    wait_live(page)
    page.get_by_role("button", name="Select all that match").click()
    page.keyboard.press("C")
    confirm = page.get_by_role("button", name="Cancel 285 jobs")
    expect(confirm).to_be_disabled()
    page.get_by_label("Type 285 to confirm").fill("285")
    expect(confirm).to_be_enabled()
    page.keyboard.press("Escape")
    assert ok(seed.state(queue))["count"] == 298


def test_jobs_are_exported_as_json_lines(page: Page, queue: str, tmp_path: Path) -> None:
    open_jobs(page, queue, "?tag=t0")
    page.get_by_role("button", name="Export…").click()
    expect(page.get_by_text("97 jobs as JSON lines")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Save the file").click()
    path = tmp_path / "jobs.jsonl"
    download.value.save_as(path)
    jobs = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(jobs) == 97 and {job["$tag"] for job in jobs} == {"t0"}
    assert jobs[0]["data"] == {"user": "user0@example.com"}


def test_a_phone_shows_the_jobs_and_changes_all_that_match(
    open_page: OpenPage, seed: Api, queue: str
) -> None:
    page = open_page(phone=True)
    open_jobs(page, queue, "?state=in_flight")
    page.get_by_role("button", name="Select all that match").click()
    page.get_by_role("button", name="Return…").click()
    page.get_by_role("button", name="Return 3 jobs").click()
    expect(page.get_by_text("3 jobs returned")).to_be_visible()
    assert ok(seed.state(queue))["queue"]["in_flight"] == 0
