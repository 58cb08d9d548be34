"""The page of one job: why it waits, its life, and putting it right."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.http.api import Api
from tests.http.expect import ok
from tests.ui import axe, hostile
from tests.ui.conftest import OpenPage
from tests.ui.pages import check_width, wait
from tests.ui.problems import Problems


@pytest.fixture
def queue(seed: Api, request: pytest.FixtureRequest) -> str:
    """A queue of this test's own, with what a job can wait for."""
    name = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_"))
    config = {"dead_letter": f"{name}.dead", "max_deliveries": 5, "on_exhausted": None}
    ok(seed.put(name, type="queue", archive=f"{name}.done", **config), 201)
    return name


def open_job(page: Page, queue: str, seq: int = 1) -> None:
    """Show the page of a job."""
    page.goto(f"/ui/queues/{queue}/jobs/{seq}")
    wait(page)
    expect(page.locator(".job-why")).to_be_visible()


def state(seed: Api, queue: str, seq: int = 1) -> str:
    """The state of a job, as the API has it."""
    found: str = ok(seed.job(queue, seq, ended="true"))["job"]["state"]
    return found


def test_a_job_after_an_error_is_explained_and_retried(page: Page, seed: Api, queue: str) -> None:
    seed.append_many(queue, [{"data": {"n": 1}, "tag": "eu"}])
    seed.claimed(queue, "w7")
    ok(seed.nack(queue, [1], "w7", error="no route\nto host", delay_ms=90_000))
    open_job(page, queue)
    expect(page.locator(".job-why")).to_contain_text(
        "Given back (no route to host): it is tried again"
    )
    steps = page.get_by_label("Timeline").locator("li")
    expect(steps).to_have_count(4)
    expect(steps.nth(1)).to_contain_text("Claimed by w7")
    expect(steps.nth(2)).to_contain_text("no route\nto host")
    axe.check(page)
    page.get_by_role("button", name="Retry now").click()
    expect(page.locator(".job-why")).to_contain_text("Ready")
    assert state(seed, queue) == "ready"


def test_other_data_is_shown_as_a_difference_and_can_be_undone(
    page: Page, seed: Api, queue: str
) -> None:
    seed.append_many(queue, [{"data": {"to": "a@x", "big": 1}, "delay_ms": 90_000}])
    open_job(page, queue)
    page.keyboard.press("e")
    data = page.get_by_role("dialog").get_by_label("Data")
    data.fill('{"to": "b@x", "big": 12345678901234567890')
    save = page.get_by_role("button", name="Save and retry now")
    expect(save).to_be_disabled()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Change and retry…").click()
    data.fill('{"to": "b@x", "big": 12345678901234567890}')
    difference = page.get_by_label("Difference")
    expect(difference.locator("tr.removed").first).to_contain_text('"a@x"')
    expect(difference.locator("tr.added").first).to_contain_text('"b@x"')
    save.click()
    expect(page.get_by_text("Job 1 changed; it is ready")).to_be_visible()
    assert ok(seed.job(queue, 1))["job"]["data"]["big"] == 12345678901234567890
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Job 1 has its data back")).to_be_visible()
    assert ok(seed.job(queue, 1))["job"]["data"] == {"to": "a@x", "big": 1}


def test_a_cancelled_job_is_still_explained(page: Page, seed: Api, queue: str) -> None:
    seed.append_many(queue, [{"data": 1}])
    open_job(page, queue)
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Keep it").click()
    assert state(seed, queue) == "ready"
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator(".job-why")).to_contain_text("Cancelled")
    copy = page.locator(".job-why").get_by_role("link", name=f"{queue}.done 1")
    expect(copy).to_be_visible()


def test_a_dead_job_comes_back_with_other_data(page: Page, seed: Api, queue: str) -> None:
    seed.append_many(queue, [{"data": {"to": "nowhere"}}])
    seed.claimed(queue, "w7")
    ok(seed.reject(queue, [1], "w7", error="no such address"))
    open_job(page, queue)
    expect(page.locator(".job-why")).to_contain_text("no such address")
    page.get_by_role("button", name="Redrive with other data…").click()
    page.get_by_role("dialog").get_by_label("Data").fill('{"to": "somewhere"}')
    page.get_by_role("button", name="Redrive", exact=True).last.click()
    expect(page.get_by_text(f"Moved back to {queue}")).to_be_visible()
    assert ok(seed.job(queue, 2))["job"]["data"] == {"to": "somewhere"}
    expect(page.locator(".job-why")).to_contain_text("The copy is gone")
    open_job(page, queue, 2)
    expect(page.get_by_label("Timeline")).to_contain_text(f"redriven from {queue}.dead 1")


def test_what_happens_to_a_job_is_seen_live(page: Page, seed: Api, queue: str) -> None:
    seed.append_many(queue, [{"data": 1}])
    open_job(page, queue)
    seed.claimed(queue, "w7")
    expect(page.locator(".job-why")).to_contain_text("In flight: w7 has had it for")
    page.get_by_role("button", name="End the lease…").click()
    page.get_by_role("button", name="End the lease", exact=True).click()
    expect(page.get_by_label("Timeline")).to_contain_text("Lease ended by an operator")
    page.get_by_role("button", name="Hold").click()
    expect(page.locator(".job-why")).to_contain_text("On hold")
    page.get_by_role("button", name="Release").click()
    expect(page.locator(".job-why")).to_contain_text("Ready")
    ok(seed.cancel(queue, 1))
    expect(page.locator(".job-why")).to_contain_text("Cancelled")


def test_a_job_that_never_was(page: Page, seed: Api, queue: str, problems: Problems) -> None:
    problems.expect("404")
    page.goto(f"/ui/queues/{queue}/jobs/77")
    expect(page.get_by_text("its logs know of none")).to_be_visible()


def test_hostile_jobs_are_text(open_page: OpenPage, seed: Api, queue: str) -> None:
    record = {"data": {hostile.MARKUP: hostile.TURNED}, "tag": hostile.EMOJI, "meta": {"m": "<b>"}}
    seed.append_many(queue, [record])
    seed.claimed(queue, hostile.MARKUP[:100])
    ok(seed.nack(queue, [1], hostile.MARKUP[:100], error=hostile.LINES, delay_ms=90_000))
    page = open_page(phone=True, dark=True)
    open_job(page, queue)
    expect(page.get_by_label("About this job")).to_contain_text(hostile.MARKUP)
    assert page.title() == "Job 1 – logqueue"
    check_width(page)
