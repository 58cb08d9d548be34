"""The page of batches: what is left of them, and their end."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.http.api import Api
from tests.http.expect import Json, ok
from tests.ui.pages import cell

EVIL = "<img src=x onerror=alert(1)>"


def test_a_batch_from_its_jobs_to_its_end(page: Page, seed: Api) -> None:
    done: Json = {"topic": "reports", "record": {"data": EVIL}}
    ok(seed.json("POST", "/v0/batches", {"name": "import-17", "on_done": done}), 201)
    seed.make_queue("rows")
    seed.append_many("rows", [{"data": n, "batch": "import-17"} for n in range(4)])
    seed.claimed("rows", "w7", max=3)
    seed.ack("rows", [1, 2], "w7")
    seed.reject("rows", [3], "w7", error="no such row")
    page.goto("/ui/queues/rows/jobs/4")
    page.get_by_label("About this job").get_by_role("link", name="import-17").click()
    dialog = page.get_by_role("dialog", name="import-17")
    expect(dialog).to_contain_text("4 jobs joined: 2 done, 1 failed, 1 left")
    expect(dialog).to_contain_text(EVIL)
    dialog.get_by_role("button", name="Close the batch…").click()
    page.get_by_role("button", name="Close it for good").click()
    expect(dialog).to_contain_text("Closed")
    seed.claimed("rows", "w7")
    seed.ack("rows", [4], "w7")
    expect(dialog).to_contain_text("3 done, 1 failed, 0 left")
    expect(dialog).to_contain_text("Ended")
    page.keyboard.press("Escape")
    expect(cell(page, "import-17", "Failed")).to_have_text("1")
    expect(page.get_by_role("img", name="3 done, 1 failed, 0 left")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete the batch").click()
    expect(page.get_by_text("There is no batch.")).to_be_visible()
    assert seed.send("GET", "/v0/batches/import-17").status_code == 404
