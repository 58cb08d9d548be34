"""The report page of the pipeline in a browser: one range, one choice, any zone, any text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from logqueue.pipeline.reports.report_page import page as page_of
from tests.spark.sample_report import busy_week
from tests.ui import axe
from tests.ui.conftest import DESKTOP, PHONE, TIMEOUT_MS
from tests.ui.problems import Problems

HOSTILE = (
    "<script>alert(1)</script>",
    "</title></script><img src=x onerror=alert(2)>",
    "__proto__",
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with all there may be on one, and texts that try to be more than text."""
    tables = busy_week(
        ("mail", "thumbnails", HOSTILE[0]),
        buckets=48,
        reasons=HOSTILE,
        tags=("welcome", HOSTILE[1]),
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    text = page_of(tables, title=HOSTILE[1], dashboard="http://127.0.0.1:4000/ui/")
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def show(browser: Browser, report: Path, problems: Problems) -> Iterator[Page]:
    """The report, open; it may neither run nor load anything that is not its own."""
    context = browser.new_context(viewport=DESKTOP, timezone_id="Asia/Tokyo")
    context.set_default_timeout(TIMEOUT_MS)
    problems.watch(context)
    page = context.new_page()
    page.goto(report.as_uri())
    yield page
    context.close()


def test_charts_share_a_range_and_a_choice(show: Page) -> None:
    flow, depth = (show.locator(f'figure[data-chart="{name}"]') for name in ("flow", "depth"))
    chosen = show.locator("#chosen")
    expect(flow.locator("canvas")).to_be_visible()
    expect(flow.locator(".plot.still")).to_be_hidden()
    flow.locator(".canvas").scroll_into_view_if_needed()
    box = flow.locator(".u-over").bounding_box()
    assert box is not None
    show.mouse.move(box["x"] + box["width"] / 4, box["y"] + 50)
    show.mouse.down()
    show.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50, steps=4)
    show.mouse.up()
    expect(chosen).to_contain_text("2026-03-02 12:00 to 2026-03-03 00:00 UTC")
    depth.get_by_text("Numbers").last.click()
    first = depth.locator(".live tbody td").first
    expect(first).to_have_text("2026-03-02 12:00")
    flow.locator(".canvas").focus()
    show.keyboard.press("Escape")
    expect(chosen).to_be_empty()
    expect(first).to_have_text("2026-03-02 00:00")
    show.locator("#by-topic").select_option(label="thumbnails")
    expect(chosen).to_contain_text("topic thumbnails: ")
    cells = show.locator("#topics tbody tr:visible td:first-child")
    assert cells.all_inner_texts() == ["thumbnails"]
    show.locator("#by-tag").select_option(label=HOSTILE[1])
    expect(flow.locator(".live .legend")).to_contain_text("acks")
    expect(depth.locator(".live")).to_contain_text("Not counted by tag.")
    show.locator("#by-worker").select_option(index=1)
    expect(chosen).to_contain_text("500 claims, 480 acks, 20 failures")


def test_times_are_shown_in_the_zone_that_is_chosen(show: Page) -> None:
    about, from_ = show.locator(".about"), show.get_by_label("From")
    expect(about).to_contain_text("2026-03-02 00:00 to 2026-03-04 00:00 UTC")
    show.get_by_label("Zone").select_option("Asia/Tokyo")
    expect(about).to_contain_text("2026-03-02 09:00 to 2026-03-04 09:00 Asia/Tokyo")
    expect(from_).to_have_value("2026-03-02T09:00")
    from_.fill("2026-03-03T09:00")
    from_.press("Tab")
    expect(show.locator("#chosen")).to_contain_text("2026-03-03 09:00 to 2026-03-04 09:00")
    link = show.locator("#promises a").first
    assert (link.get_attribute("href") or "").startswith("http://127.0.0.1:4000/ui/queues/")


def test_it_is_accessible(show: Page) -> None:
    expect(show.locator('figure[data-chart="flow"] canvas')).to_be_visible()
    axe.thin(show, "tbody tr")
    axe.check(show)
    show.emulate_media(color_scheme="dark")
    show.set_viewport_size(PHONE)
    axe.check(show, colours_only=True)
    wide = show.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, "nothing sticks out of a phone"


def test_without_scripts_drawings_and_tables_are_there(browser: Browser, report: Path) -> None:
    context = browser.new_context(viewport=DESKTOP, java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    expect(page.locator('figure[data-chart="flow"] svg')).to_be_visible()
    expect(page.locator(".controls")).to_be_hidden()
    page.locator('figure[data-chart="flow"] summary').click()
    expect(page.locator('figure[data-chart="flow"] td').first).to_have_text("2026-03-02 00:00")
    context.close()
