"""Priorities, groups, results and chains, on the pages of a queue and of its jobs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.http.api import Api
from tests.http.expect import Json, ok
from tests.ui import pages
from tests.ui.pages import wait, wait_live

EVIL = "<img src=x onerror=alert(1)>"
STEPS = [{"topic": "ship", "record": {"data": {"carrier": "fast"}}}]
GROUPS = {"mode": "fair", "max_in_flight_per_group": 2}


@pytest.fixture
def queue(seed: Api, request: pytest.FixtureRequest) -> str:
    """A queue of this test's own, which has groups and keeps results."""
    name = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_"))
    config = {"groups": GROUPS, "results": {}, "dead_letter": "failed"}
    ok(seed.put(name, type="queue", **config), 201)
    return name


def open_job(page: Page, queue: str, seq: int) -> None:
    """Show the page of a job."""
    page.goto(f"/ui/queues/{queue}/jobs/{seq}")
    wait(page)
    expect(page.locator(".job-why")).to_be_visible()


def job_of(seed: Api, queue: str, seq: int) -> Json:
    """A job as the server has it."""
    found: Json = ok(seed.job(queue, seq))["job"]
    return found


def test_a_job_from_its_progress_to_its_result(page: Page, seed: Api, queue: str) -> None:
    ok(seed.json("POST", "/v0/batches", {"name": "import"}), 201)
    record = {"data": 1, "priority": 7, "group": EVIL, "batch": "import", "then": STEPS}
    seed.append_many(queue, [record])
    lease = seed.claimed(queue, "w7")[0]["lease_id"]
    open_job(page, queue, 1)
    about = page.get_by_label("About this job")
    expect(about).to_contain_text(EVIL)
    expect(about).to_contain_text("import")
    expect(about.get_by_role("link", name="7", exact=True)).to_have_attribute(
        "href", f"/ui/queues/{queue}/jobs?priority=7"
    )
    steps = page.get_by_label("What follows")
    expect(steps.get_by_role("link", name="ship")).to_have_attribute("href", "/ui/queues/ship")
    expect(page.get_by_label("Progress", exact=True)).to_have_count(0)
    report = {"node": "w7", "seqs": [1], "lease_ms": 60_000, "progress": 0.5, "note": EVIL}
    ok(seed.json("POST", f"/v0/topics/{queue}/extend", report))
    expect(page.get_by_label("Progress", exact=True)).to_contain_text(EVIL)
    expect(page.get_by_label("Progress", exact=True)).to_contain_text("50 %")
    for path, table in ((f"/ui/queues/{queue}/jobs", queue), ("/ui/workers?node=w7", "in hand")):
        pages.go(page, path)
        row = page.get_by_role("table", name=table).get_by_role("row")
        expect(row.filter(has_text=EVIL).filter(has_text="50 %")).to_be_visible()
    open_job(page, queue, 1)
    body: Json = {"node": "w7", "seqs": [1], "lease_ids": [lease], "results": [{"sent": EVIL}]}
    ok(seed.json("POST", f"/v0/topics/{queue}/ack", body))
    expect(page.locator(".job-why")).to_contain_text("Done")
    expect(page.get_by_label("Result").first).to_contain_text(EVIL)
    expect(page.get_by_label("Progress", exact=True)).to_have_count(0)
    expect(about).to_contain_text("Ended")


def test_a_dead_job_of_a_queue_with_results_is_redriven(page: Page, seed: Api, queue: str) -> None:
    seed.append_many(queue, [{"data": 1, "priority": 3}])
    seed.claimed(queue, "w7")
    ok(seed.reject(queue, [1], "w7", error="no such address"))
    open_job(page, queue, 1)
    expect(page.locator(".job-why")).to_contain_text("Dead")
    expect(page.get_by_label("About this job")).to_contain_text("no such address")
    page.get_by_role("button", name="Redrive", exact=True).click()
    expect(page.get_by_text(f"Moved back to {queue}")).to_be_visible()
    assert job_of(seed, queue, 2)["priority"] == 3


def test_the_priority_of_a_job_is_changed(page: Page, seed: Api, queue: str) -> None:
    seed.append_many(queue, [{"data": 1}])
    open_job(page, queue, 1)
    page.get_by_role("button", name="Change…").click()
    page.get_by_role("dialog").get_by_label("Priority").select_option("9")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_label("About this job").get_by_role("link", name="9")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Job 1 has its data back")).to_be_visible()
    assert "priority" not in job_of(seed, queue, 1)


def test_jobs_are_found_by_group_and_prioritized(page: Page, seed: Api, queue: str) -> None:
    seed.append_many(queue, [{"data": n} for n in range(5)])
    page.goto(f"/ui/queues/{queue}/jobs")
    wait_live(page)
    headings = page.get_by_role("columnheader")
    expect(page.get_by_text("5 jobs, all loaded")).to_be_visible()
    expect(headings.filter(has_text="Priority")).to_have_count(0)
    expect(headings.filter(has_text="Group")).to_have_count(0)
    seed.append_many(queue, [{"data": n, "group": "acme"} for n in range(3)])
    page.get_by_label("Group", exact=True).fill("acme")
    expect(page.get_by_text("3 jobs, all loaded")).to_be_visible()
    expect(headings.filter(has_text="Group")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    page.keyboard.press("P")
    dialog = page.get_by_role("dialog", name="Prioritize all jobs: group acme")
    dialog.get_by_label("Priority").select_option("8")
    dialog.get_by_role("button", name="Prioritize 3 jobs").click()
    expect(page.get_by_text("3 jobs prioritized")).to_be_visible()
    expect(headings.filter(has_text="Priority")).to_be_visible()
    assert [job_of(seed, queue, seq).get("priority") for seq in (5, 6, 8)] == [None, 8, 8]
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_label("Priority", exact=True).select_option("8")
    expect(page).to_have_url(re.compile(r"\?priority=8$"))
    expect(page.get_by_text("3 jobs, all loaded")).to_be_visible()


def test_a_job_is_enqueued_with_priority_and_group(page: Page, seed: Api, queue: str) -> None:
    page.goto(f"/ui/queues/{queue}")
    wait_live(page)
    page.get_by_role("button", name="Enqueue…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Data").fill("1")
    dialog.get_by_label("Priority").select_option("6")
    dialog.get_by_label("Group", exact=True).fill("acme")
    dialog.get_by_role("button", name="Enqueue the job").click()
    expect(page.get_by_text("Job 1 enqueued")).to_be_visible()
    job = job_of(seed, queue, 1)
    assert (job["priority"], job["group"]) == (6, "acme")


def test_the_config_is_in_words_and_edited_in_fields(page: Page, seed: Api) -> None:
    ok(seed.put("tenants", type="queue"), 201)
    page.goto("/ui/queues/tenants")
    wait_live(page)
    page.get_by_role("button", name="Edit config…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Max. in flight of a group")).to_have_count(0)
    dialog.get_by_label("Groups").select_option("fair")
    dialog.get_by_label("Max. in flight of a group").fill("3")
    dialog.get_by_label("Ageing, ms").fill("60000")
    dialog.get_by_label("Keep results, ms").fill("7200000")
    dialog.get_by_role("button", name="Review the change").click()
    dialog.get_by_role("button", name="Save the config").click()
    words = page.get_by_role("region", name="Config")
    expect(words).to_contain_text("Groups take turns, one job each. At most 3 jobs of a group")
    expect(words).to_contain_text("one level of priority higher after each 1 min")
    expect(words).to_contain_text("kept for 2 h, up to 16.0 MiB in all")
    ok(seed.patch("tenants", groups={"weights": {EVIL: 4}}))
    expect(words).to_contain_text(f"In its turn {EVIL} gives 4.")
    page.get_by_role("button", name="Edit config…").click()
    dialog.get_by_label("Groups").select_option("default")
    dialog.get_by_role("button", name="Review the change").click()
    dialog.get_by_role("button", name="Save the config").click()
    expect(words).not_to_contain_text("Groups take turns")
    assert "groups" not in ok(seed.state("tenants"))["config"]


def test_groups_by_backlog_and_by_age(page: Page, seed: Api, queue: str) -> None:
    for group, jobs in (("first", 1), (EVIL, 3), ("busy", 4)):
        seed.append_many(queue, [{"data": 1, "group": group, "priority": jobs}] * jobs)
    assert {job["group"] for job in seed.claimed(queue, "w7", max=2)} == {"first", EVIL}
    page.goto(f"/ui/queues/{queue}")
    table = page.get_by_role("region", name="Groups")
    rows = table.get_by_role("row")
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("busy")
    expect(rows.nth(1)).to_contain_text("may go")
    expect(rows.nth(2)).to_contain_text(EVIL)
    expect(rows.nth(3)).to_contain_text("in flight")
    seed.claimed(queue, "w7", max=3)
    expect(rows.filter(has_text=EVIL)).to_contain_text("must wait")
    table.get_by_role("button", name="Oldest job").click()
    expect(rows.nth(1)).to_contain_text(EVIL)
    rows.nth(1).get_by_role("link", name=EVIL).click()
    expect(page.get_by_text("3 jobs, all loaded")).to_be_visible()
