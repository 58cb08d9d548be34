"""The page of dead letters: groups, one of them whole, and what is done about them."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.http.api import Api, seqs_of
from tests.http.expect import eventually, ok
from tests.ui import axe, hostile
from tests.ui.conftest import OpenPage
from tests.ui.pages import check_width, wait


@pytest.fixture
def queue(seed: Api, request: pytest.FixtureRequest) -> str:
    """A queue of this test's own."""
    name = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_"))
    ok(seed.put(name, type="queue", dead_letter=f"{name}.dead"), 201)
    return name


def fail(seed: Api, queue: str, *errors: str) -> None:
    """A dead letter for each error."""
    seed.append_many(queue, [{"data": {"of": error[:50]}} for error in errors])
    for seq, error in zip(seqs_of(seed.claimed(queue, max=len(errors))), errors, strict=True):
        ok(seed.reject(queue, [seq], error=error))


def open_letters(page: Page, queue: str) -> None:
    """Show the dead letters of a queue."""
    page.goto(f"/ui/dead-letters?queue={queue}")
    wait(page)
    expect(page.locator("tbody tr").first).to_be_visible()


def count(seed: Api, topic: str) -> int:
    """Records in a topic."""
    found: int = ok(seed.state(topic))["count"]
    return found


def test_a_group_is_redriven_and_another_one_dropped(page: Page, seed: Api, queue: str) -> None:
    fail(seed, queue, "no user 81234", "no user 81235", "status 502", "status 502", "status 502")
    open_letters(page, queue)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("status 502")
    axe.check(page)
    rows.filter(has_text="no user *").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("no user 81235")
    expect(dialog.get_by_role("link", name=f"{queue} 2")).to_be_visible()
    axe.check(page)
    page.get_by_role("button", name="Redrive the group…").click()
    page.get_by_role("button", name="Redrive 2 letters").click()
    expect(page.get_by_text(f"2 letters of {queue}.dead moved back to {queue}")).to_be_visible()
    expect(rows).to_have_count(1)
    assert (count(seed, queue), count(seed, f"{queue}.dead")) == (2, 3)
    rows.first.hover()
    rows.first.get_by_role("button", name="Drop…").click()
    drop = page.get_by_role("button", name="Drop 3 letters")
    expect(drop).to_be_disabled()
    page.get_by_label("to confirm").fill("3")
    drop.click()
    expect(page.get_by_text("3 letters of")).to_be_visible()
    assert count(seed, f"{queue}.dead") == 0


def test_all_are_redriven_at_a_pace_with_progress(page: Page, seed: Api, queue: str) -> None:
    fail(seed, queue, *["broken"] * 40)
    ok(seed.put(f"{queue}.other", type="queue"), 201)
    open_letters(page, queue)
    page.get_by_role("button", name="Redrive all…").click()
    page.get_by_label("To", exact=True).fill(f"{queue}.other")
    page.get_by_label("At most per second").fill("10")
    page.get_by_role("button", name="Redrive 40 letters").click()
    work = page.get_by_label("Work in progress")
    expect(work).to_contain_text("10 letters a second at most")
    work.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped:")).to_be_visible()
    moved = count(seed, f"{queue}.other")
    assert 0 < moved < 40 and count(seed, f"{queue}.dead") == 40 - moved


def test_one_letter_goes_back_with_other_data(page: Page, seed: Api, queue: str) -> None:
    fail(seed, queue, "bad address")
    open_letters(page, queue)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Redrive with other data…").click()
    page.get_by_role("dialog").get_by_label("Data").fill('{"fixed": true}')
    page.get_by_role("button", name="Redrive", exact=True).click()
    expect(page.get_by_text("Moved back to")).to_be_visible()
    assert eventually(lambda: count(seed, queue) == 1)
    assert ok(seed.job(queue, 2))["job"]["data"] == {"fixed": True}


def test_hostile_errors_are_text(open_page: OpenPage, seed: Api, queue: str) -> None:
    fail(seed, queue, hostile.MARKUP, hostile.LINES, hostile.TURNED, hostile.WIDE)
    page = open_page(phone=True, dark=True)
    open_letters(page, queue)
    expect(page.locator("tbody tr")).to_have_count(4)
    check_width(page)
    page.locator("tbody tr").filter(has_text="onerror").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("<img src=x")
    check_width(page)
    assert page.title() == "Dead letters – logqueue"


def test_without_letters_it_says_how_they_come(page: Page, seed: Api) -> None:
    page.goto("/ui/dead-letters?queue=none-of-these")
    wait(page)
    expect(page.locator(".empty")).to_be_visible()
