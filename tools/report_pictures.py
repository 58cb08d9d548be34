"""Pictures of the report page, of the log of a real server with a busy shop on it.

`make report-pictures` writes them into `docs/images/`, which the documentation shows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tools import chromium
from tools.screenshots import DARK, DESK, ROOT, View, busy_server, shot, small

IMAGES = ROOT / "docs" / "images"
SETTLE_MS = 1500
"""After which the charts in view have been drawn."""


def report_of(data_dir: Path, url: str, folder: Path) -> Path:
    """The page about a server's log."""
    command = [sys.executable, "-m", "logqueue", "pipeline", "report", "--path", str(data_dir)]
    more = ["--bucket", "1s", "--sla", "wait=5s,e2e=20s", "--format", "html", "--dashboard", url]
    subprocess.run([*command, *more, "--to", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return folder / "report.html"


def picture(browser: Browser, page_file: Path, view: View, *, at: str = "") -> bytes:
    """The page as it looks, as PNG; `at` is the section at the top of the window."""
    context = browser.new_context(
        viewport={"width": view.width, "height": view.height},
        color_scheme="dark" if view.is_dark else "light",
    )
    try:
        page = context.new_page()
        page.goto(page_file.as_uri() + (f"#{at}" if at else ""))
        page.locator("#by-topic option").first.wait_for(state="attached")
        page.wait_for_timeout(SETTLE_MS)
        return shot(page)
    finally:
        context.close()


def main() -> int:
    """Write the pictures; prints where."""
    parser = argparse.ArgumentParser(prog="python -m tools.report_pictures", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="work that the report is about")
    parser.add_argument("--folder", type=Path, default=IMAGES)
    options = parser.parse_args()
    if chromium.program() is None:
        sys.stderr.write(f"report_pictures: {chromium.MISSING}\n")
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        with busy_server(options.seconds) as server:
            page_file = report_of(server.data_dir, server.url, Path(folder))
        with sync_playwright() as playwright:
            browser = chromium.launched(playwright)
            for name, view, at in (
                ("report-top", DESK, ""),
                ("report-top-dark", DARK, ""),
                ("report-speed", DESK, "speed"),
                ("report-speed-dark", DARK, "speed"),
            ):
                png = picture(browser, page_file, view, at=at)
                (options.folder / f"{name}.webp").write_bytes(small(png))
            browser.close()
    print(f"report_pictures: {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
