"""Pictures of every page of the dashboard, of a real server with a busy shop on it.

`make screenshots` writes all of them: at the width of a desk, of a phone, and dark. With `--docs`
those that the documentation shows are written too.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from logqueue import Client
from logqueue.demo import shop
from logqueue.demo.server import DemoServer
from tools import chromium

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs" / "dashboard"
SETTLE_MS = 2500
"""After which charts have been drawn and the feed has been heard twice."""

USEFUL = ":is(main td, main dd, main pre):visible"
"""The first numbers or data, on whichever page."""


class View(NamedTuple):
    """One way to look at a page."""

    name: str
    width: int
    height: int
    is_dark: bool = False


DESK = View("desk", 1280, 800)
PHONE = View("phone", 390, 844)
DARK = View("dark", 1280, 800, is_dark=True)

IN_DOCS = {
    "overview": (DESK, DARK, PHONE),
    "queue": (DESK,),
    "jobs": (DESK,),
    "job": (DESK,),
    "dead-letters": (DESK,),
    "workers": (DARK,),
    "schedules": (DESK,),
    "log": (DESK,),
    "server": (DESK,),
}
"""What the documentation shows."""


def paths(client: Client) -> dict[str, str]:
    """Where the pages are, with something to see on each."""
    while not (waiting := client.job_page(shop.WEBHOOKS, state="delayed", limit=500).jobs):
        time.sleep(0.1)
    retried = max(waiting, key=lambda job: job.not_before or 0)
    return {
        "overview": "/ui/",
        "queue": f"/ui/queues/{shop.WEBHOOKS}",
        "jobs": f"/ui/queues/{shop.WEBHOOKS}/jobs",
        "job": f"/ui/queues/{shop.WEBHOOKS}/jobs/{retried.seq}",
        "dead-letters": "/ui/dead-letters",
        "workers": "/ui/workers",
        "schedules": "/ui/schedules",
        "log": f"/ui/log/{shop.EVENTS}",
        "server": "/ui/server",
    }


@contextmanager
def busy_server(seconds: float) -> Iterator[DemoServer]:
    """A server on which a shop has worked for so long, and goes on."""
    with tempfile.TemporaryDirectory() as folder:
        server = DemoServer(Path(folder) / "server", Path(folder))
        server.start()
        busy = shop.Shop(server.url)
        try:
            busy.set_up()
            # Its history begins with a normal minute, not with the jobs that were waiting before.
            server.stop()
            server.start()
            busy.start()
            time.sleep(seconds)
            yield server
        finally:
            busy.stop()
            server.stop()


def picture(browser: Browser, url: str, view: View) -> bytes:
    """A page as it looks, as PNG. Prints when there was something useful on it."""
    context = browser.new_context(
        viewport={"width": view.width, "height": view.height},
        color_scheme="dark" if view.is_dark else "light",
        device_scale_factor=1,
        is_mobile=view is PHONE,
    )
    try:
        page = context.new_page()
        began = time.monotonic()
        page.goto(url, wait_until="commit")
        page.locator(USEFUL).first.wait_for()
        print(f"{url} {view.name}: useful after {1000 * (time.monotonic() - began):.0f} ms")
        page.wait_for_timeout(SETTLE_MS)
        return shot(page)
    finally:
        context.close()


def shot(page: Page) -> bytes:
    """What the window shows now."""
    return page.screenshot(animations="disabled", caret="hide")


def small(png: bytes) -> bytes:
    """The same picture as WebP, without a loss."""
    target = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(target, "WEBP", lossless=True, method=6)
    return target.getvalue()


def main() -> int:
    """Write the pictures; says which."""
    parser = argparse.ArgumentParser(prog="python -m tools.screenshots", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "screenshots")
    parser.add_argument("--seconds", type=float, default=20, help="work before the first picture")
    parser.add_argument("--only", nargs="*", help="pages, by name")
    parser.add_argument("--docs", action="store_true", help=f"write {DOCS.relative_to(ROOT)} too")
    options = parser.parse_args()
    if chromium.program() is None:
        sys.stderr.write(f"screenshots: {chromium.MISSING}\n")
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    with busy_server(options.seconds) as server, sync_playwright() as playwright:
        browser = chromium.launched(playwright)
        for name in options.only or IN_DOCS:
            with Client(server.url) as client:
                path = paths(client)[name]
            for view in (DESK, PHONE, DARK):
                png = picture(browser, server.url + path, view)
                (options.folder / f"{name}-{view.name}.png").write_bytes(png)
                if options.docs and view in IN_DOCS[name]:
                    DOCS.mkdir(exist_ok=True)
                    (DOCS / f"{name}-{view.name}.webp").write_bytes(small(png))
        browser.close()
    print(f"screenshots: {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
