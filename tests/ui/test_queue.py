"""The page of one queue: its state, and what is done to it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.http.api import Api
from tests.http.expect import ok
from tests.ui.conftest import OpenPage
from tests.ui.pages import wait_live
from tests.ui.problems import Problems


@pytest.fixture
def queue(seed: Api, request: pytest.FixtureRequest) -> str:
    """A queue of this test's own."""
    name = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_"))
    ok(seed.put(name, type="queue", dead_letter=f"{name}.dead", max_deliveries=5), 201)
    return name


def open_queue(page: Page, queue: str) -> None:
    """Show the page of a queue."""
    page.goto(f"/ui/queues/{queue}")
    wait_live(page)
    expect(page.get_by_text("A claimed job returns to the queue")).to_be_visible()


def test_a_job_is_enqueued_by_hand(page: Page, seed: Api, queue: str) -> None:
    open_queue(page, queue)
    page.keyboard.press("n")
    data = page.get_by_label("Data")
    data.fill('{\n  "a": [1, 2,}')
    send = page.get_by_role("button", name="Enqueue the job")
    expect(send).to_be_disabled()
    expect(page.get_by_text("Line 2, column 14")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("n")
    expect(data).to_have_value('{\n  "a": [1, 2,}')
    # No digit is lost, and nothing is taken for markup.
    data.fill('{"big": 12345678901234567890, "text": "<b>&amp;"}')
    page.get_by_label("Tag").fill("eu")
    page.get_by_label("Delay", exact=True).fill("1.5")
    page.get_by_label("Unit of the delay").select_option("h")
    send.click()
    expect(page.get_by_text("Job 1 enqueued")).to_be_visible()
    job = ok(seed.send("GET", f"/v0/topics/{queue}/jobs/1"))["job"]
    assert job["data"] == {"big": 12345678901234567890, "text": "<b>&amp;"}
    assert (job["$tag"], job["state"]) == ("eu", "delayed")
    delayed = page.get_by_label("Jobs of this queue").get_by_role("link", name="1", exact=True)
    expect(delayed).to_have_attribute("href", re.compile(r"\?state=delayed$"))
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Job 1 cancelled")).to_be_visible()
    assert ok(seed.state(queue))["count"] == 0


def test_a_refused_job_stays_as_it_was_typed(
    page: Page, seed: Api, queue: str, problems: Problems
) -> None:
    ok(seed.patch(queue, cap_records=1, discard="reject"))
    seed.append_many(queue, [{"data": 1}])
    problems.expect("422")
    open_queue(page, queue)
    page.get_by_role("button", name="Enqueue…").click()
    page.get_by_label("Data").fill('{"typed": 1}')
    page.get_by_role("button", name="Enqueue the job").click()
    expect(page.get_by_role("alert")).to_contain_text("is full")
    expect(page.get_by_label("Data")).to_have_value('{"typed": 1}')


def test_two_editors_of_one_config(
    open_page: OpenPage, seed: Api, queue: str, problems: Problems
) -> None:
    """The second one sees what the first one changed, and both changes are kept."""
    problems.expect("412")
    first, second = open_page(), open_page()
    for page in (first, second):
        open_queue(page, queue)
        page.keyboard.press("e")
    for page, label, value in ((first, "Max. in flight", "50"), (second, "Lease, ms", "45000")):
        page.get_by_label(label).fill(value)
        page.get_by_role("button", name="Review the change").click()
    expect(first.get_by_label("Change of the config").locator("tr.added")).to_have_text(
        re.compile('"max_in_flight": 50')
    )
    first.get_by_role("button", name="Save the config").click()
    expect(first.get_by_text(f"Config of {queue} changed")).to_be_visible()
    expect(first.get_by_text("At most 50 jobs in flight.")).to_be_visible()
    second.get_by_role("button", name="Save the config").click()
    expect(second.get_by_role("alert")).to_contain_text("changed by another editor")
    others = second.get_by_label("What another editor has changed")
    expect(others.locator("tr.added")).to_have_text(re.compile('"max_in_flight": 50'))
    assert ok(seed.state(queue))["config"]["lease_ms"] == 30_000
    second.get_by_role("button", name="Apply my changes").click()
    second.get_by_role("button", name="Save the config").click()
    expect(second.get_by_text(f"Config of {queue} changed")).to_be_visible()
    config = ok(seed.state(queue))["config"]
    assert (config["lease_ms"], config["max_in_flight"]) == (45_000, 50)
    second.get_by_role("button", name="Undo").click()
    expect(second.get_by_text("is as before")).to_be_visible()
    config = ok(seed.state(queue))["config"]
    assert (config["lease_ms"], config["max_in_flight"]) == (30_000, 50)


def test_a_config_is_edited_as_json(page: Page, seed: Api, queue: str) -> None:
    open_queue(page, queue)
    page.keyboard.press("e")
    page.get_by_role("button", name="JSON, all members").click()
    editor = page.get_by_role("textbox", name="Config")
    text = editor.input_value()
    editor.fill(
        text.replace(
            '"retry_backoff": null', '"retry_backoff": {"kind": "exponential", "base_ms": 250}'
        )
    )
    page.get_by_role("button", name="Review the change").click()
    page.get_by_role("button", name="Save the config").click()
    expect(page.get_by_text("A failed job waits 250 ms, then 2 times as long")).to_be_visible()
    backoff = ok(seed.state(queue))["config"]["retry_backoff"]
    assert (backoff["base_ms"], backoff["kind"]) == (250, "exponential")


def test_a_purge_needs_the_count(page: Page, seed: Api, queue: str) -> None:
    seed.append_many(queue, [{"data": n} for n in range(1200)])
    seed.append_many(queue, [{"data": 1, "delay_ms": 3_600_000}])
    open_queue(page, queue)
    jobs = page.get_by_label("Jobs of this queue")
    expect(jobs.get_by_role("link", name="1,200")).to_be_visible()
    page.get_by_role("button", name="Purge…").click()
    remove = page.get_by_role("button", name="Remove 1,200 jobs")
    expect(remove).to_be_disabled()
    page.get_by_label("Type 1200 to confirm").fill("120")
    expect(remove).to_be_disabled()
    page.get_by_label("Type 1200 to confirm").fill("1,200")
    remove.click()
    expect(page.get_by_text("1,200 jobs removed")).to_be_visible()
    assert ok(seed.state(queue))["queue"]["delayed"] == 1
    expect(jobs.get_by_role("link", name="1,200")).to_have_count(0)


def test_where_jobs_come_from_and_go_to(page: Page, seed: Api, queue: str) -> None:
    ok(seed.put_router(f"{queue}.in", source=f"{queue}.orders", dest=queue), 201)
    open_queue(page, queue)
    connections = page.get_by_role("region", name="Connections")
    source = connections.get_by_role("link", name=f"{queue}.orders", exact=True)
    expect(source).to_have_attribute("href", f"/ui/log/{queue}.orders")
    expect(connections).to_contain_text(f"{queue}.dead")
    expect(page.get_by_text(f"After 5 deliveries a job goes to {queue}.dead.")).to_be_visible()


def test_charts_say_what_they_show(page: Page, seed: Api, queue: str) -> None:
    seed.append_many(queue, [{"data": n} for n in range(7)])
    open_queue(page, queue)
    chart = page.locator("figure", has_text="Jobs in the queue")
    expect(chart.locator("canvas")).to_be_visible()
    expect(chart.locator(".legend")).to_contain_text("Ready 7")
    page.get_by_role("button", name="24 h").click()
    expect(page).to_have_url(re.compile(r"\?window=24h$"))
    expect(chart.locator("canvas")).to_be_visible()


def test_a_queue_that_is_not_there(page: Page, problems: Problems) -> None:
    problems.expect("404")
    page.goto("/ui/queues/not-there")
    expect(page.get_by_text("There is no queue with this name.")).to_be_visible()
    page.get_by_role("button", name="Create it").click()
    expect(page.get_by_text("A claimed job returns to the queue")).to_be_visible()


def test_a_log_is_not_a_queue(page: Page, seed: Api) -> None:
    ok(seed.put("just-a-log"), 201)
    page.goto("/ui/queues/just-a-log")
    expect(page.get_by_role("link", name="Show its records")).to_have_attribute(
        "href", "/ui/log/just-a-log"
    )
