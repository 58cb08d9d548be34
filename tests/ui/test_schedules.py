"""The page of schedules: what fires when, and what can be done about it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.http.api import Api
from tests.http.expect import Json, ok
from tests.ui.problems import Problems

EVIL = "<img src=x onerror=alert(1)>"
YEARLY = {"topic": "reports", "cron": "0 3 1 1 *", "timezone": "Europe/Berlin"}
PATH = "/ui/schedules"


@pytest.fixture(scope="module", autouse=True)
def schedules(seed: Api) -> None:
    """One that fires once a year, one that is paused, one whose queue takes nothing."""
    seed.make_queue("reports")
    seed.make_queue("full", cap_records=1, discard="reject")
    seed.append("full", 1)
    put(seed, "yearly", **YEARLY, record={"data": {"text": EVIL}})
    put(seed, "resting", topic="reports", every_ms=60_000, record={"data": 1}, paused=True)
    put(seed, "refused", topic="full", every_ms=1000, record={"data": 1})


def put(seed: Api, name: str, **body: object) -> None:
    """A new schedule."""
    ok(seed.json("PUT", f"/v0/schedules/{name}", body), 201)


def get(seed: Api, name: str) -> Json:
    """A schedule as the server has it."""
    return ok(seed.send("GET", f"/v0/schedules/{name}"))


def row(page: Page, name: str) -> Locator:
    """The row of a schedule."""
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def test_what_fires_when_and_what_is_refused(page: Page) -> None:
    page.goto(PATH)
    expect(row(page, "yearly")).to_contain_text("0 3 1 1 * Europe/Berlin")
    expect(row(page, "resting")).to_contain_text("Paused")
    expect(row(page, "resting")).to_contain_text("every 1 min")
    expect(row(page, "refused")).to_contain_text("Failing")
    row(page, "refused").get_by_role("link", name="refused").click()
    expect(page.get_by_role("dialog")).to_contain_text("topic 'full' is full")


def test_one_is_run_paused_and_resumed(page: Page, seed: Api) -> None:
    put(seed, "daily", topic="reports", cron="@daily", record={"data": 1})
    page.goto(PATH)
    before = ok(seed.state("reports"))["head_seq"]
    row(page, "daily").get_by_role("button", name="Run now").click()
    expect(page.get_by_text(f"Job {before + 1} enqueued in reports by daily")).to_be_visible()
    assert ok(seed.state("reports"))["head_seq"] == before + 1
    row(page, "daily").get_by_role("button", name="Pause").click()
    expect(row(page, "daily")).to_contain_text("Paused")
    assert get(seed, "daily")["paused"]
    page.get_by_role("button", name="Undo").click()
    expect(row(page, "daily").get_by_text("On", exact=True)).to_be_visible()
    assert not get(seed, "daily")["paused"]


def test_one_is_opened_by_keys_and_deleted(page: Page, seed: Api) -> None:
    put(seed, "old", **YEARLY, record={"data": {"text": EVIL}})
    page.goto(PATH + "?q=old")
    expect(row(page, "old")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="old")
    expect(dialog.get_by_role("list", name="Next firings").get_by_role("listitem")).to_have_count(5)
    expect(dialog).to_contain_text(re.compile(r"\d{4}-01-01 03:00:00 (CET|GMT\+1)"))
    expect(dialog).to_contain_text(EVIL)
    dialog.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete the schedule").click()
    expect(page.get_by_text("No schedule matches this filter.")).to_be_visible()
    assert seed.send("GET", "/v0/schedules/old").status_code == 404


def test_one_is_made_and_edited(page: Page, seed: Api, problems: Problems) -> None:
    """Its times are shown while they are typed; a name that is taken loses nothing."""
    problems.expect("400")
    page.goto(PATH)
    page.get_by_role("button", name="New schedule…").click()
    dialog = page.get_by_role("dialog", name="New schedule")
    dialog.get_by_label("Name").fill("yearly")
    dialog.get_by_label("Queue").fill("reports")
    dialog.get_by_label("Cron").fill("0 25 * * *")
    expect(dialog.locator("p.problem")).to_be_visible()
    dialog.get_by_label("Cron").fill("30 4 * * 1")
    dialog.get_by_label("Time zone").fill("UTC")
    times = dialog.get_by_role("list", name="Next firings")
    expect(times).to_contain_text("04:30:00 UTC")
    dialog.get_by_role("button", name="Save the schedule").click()
    expect(dialog.get_by_role("alert")).to_contain_text("choose another name")
    assert get(seed, "yearly")["cron"] == YEARLY["cron"]
    dialog.get_by_label("Name").fill("weekly")
    dialog.get_by_role("button", name="Save the schedule").click()
    expect(row(page, "weekly")).to_contain_text("30 4 * * 1")

    row(page, "weekly").get_by_role("link", name="weekly").click()
    page.get_by_role("dialog").get_by_role("button", name="Edit…").click()
    dialog = page.get_by_role("dialog", name="Edit weekly")
    dialog.get_by_role("button", name="At intervals").click()
    dialog.get_by_label("Every", exact=True).fill("90")
    dialog.get_by_role("button", name="Save the schedule").click()
    expect(row(page, "weekly")).to_contain_text("every 1 h 30 min")
    assert get(seed, "weekly")["every_ms"] == 5_400_000
