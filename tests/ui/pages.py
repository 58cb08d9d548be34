"""The pages of the dashboard, for tests that are the same for all of them.

Owns: where each page is, when it is there, what none may do. Must not know: what a page shows.
"""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

QUEUE = "mail"
"""A queue that a file with tests of every page has, with at least one job."""
LOG = "visits"
"""A log that it has."""

PATHS = {
    "overview": "/ui/",
    "queue": f"/ui/queues/{QUEUE}",
    "jobs": f"/ui/queues/{QUEUE}/jobs",
    "job": f"/ui/queues/{QUEUE}/jobs/1",
    "dead letters": "/ui/dead-letters",
    "workers": "/ui/workers",
    "schedules": "/ui/schedules",
    "batches": "/ui/batches",
    "logs": "/ui/log",
    "log": f"/ui/log/{LOG}",
    "server": "/ui/server",
}
"""Every page, by what it is called here."""


def wait(page: Page) -> None:
    """Until the page is there and nothing on it is still being loaded."""
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator(".loading, [aria-busy=true]")).to_have_count(0)


def wait_live(page: Page) -> None:
    """Until the page is there and the feed has said how the server is."""
    wait(page)
    expect(page.locator("header .health")).not_to_have_text("Connecting")


def check_width(page: Page) -> None:
    """Fail where something makes the window scroll to the side, or a cell is too narrow."""
    wide = page.evaluate("""() => {
      const root = document.documentElement;
      if (root.scrollWidth <= root.clientWidth) return [];
      const outside = (one) => one.getBoundingClientRect().right > root.clientWidth + 1;
      return [...document.querySelectorAll("body *")].filter(outside).slice(0, 8)
        .map((one) => `${one.tagName}.${one.className}: ${one.textContent.slice(0, 60)}`);
    }""")
    size = page.viewport_size
    # The tail of a log gives its times no width on a phone.
    lost = page.evaluate("""() => [...document.querySelectorAll("main .table tbody td")]
      .filter((one) => one.checkVisibility() && one.clientWidth < 30)
      .map((one) => one.innerText.trim()).filter(Boolean).slice(0, 5)""")
    assert not lost, f"{page.url} has cells without width in a window of {size}: {lost}"
    assert not wide, f"{page.url} is wider than the window of {size}:\n  " + "\n  ".join(wide)


def go(page: Page, path: str) -> None:
    """Show another page of the dashboard without loading everything again, as a link does."""
    page.evaluate(
        """(path) => {
          history.pushState(null, "", path);
          dispatchEvent(new PopStateEvent("popstate"));
        }""",
        path,
    )
    wait(page)


def loaded_bytes(page: Page) -> int:
    """What the browser has received for the page without the answers of the API, compressed."""
    total: int = page.evaluate("""() => {
      const entries = performance.getEntriesByType("resource");
      const files = entries.filter((one) => !new URL(one.name).pathname.startsWith("/v0/"));
      const [document] = performance.getEntriesByType("navigation");
      return [document, ...files].reduce((sum, one) => sum + one.transferSize, 0);
    }""")
    return total


def row(page: Page, name: str) -> Locator:
    """The row of a table in which there is a link with this text."""
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def cell(page: Page, name: str, column: str) -> Locator:
    """A cell of the first table: the row of a name, the column with a heading."""
    expect(row(page, name)).to_be_visible()
    headings = [text.strip() for text in page.get_by_role("columnheader").all_inner_texts()]
    found = [at for at, text in enumerate(headings) if text.startswith(column)]
    assert found, f"no column {column} among {headings}"
    return row(page, name).locator("td, th").nth(found[0])
