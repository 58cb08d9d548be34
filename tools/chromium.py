"""Chromium for tests and screenshots: an installed one, driven by Playwright; no download.

Owns: where Chromium is, how it is started, the message where there is none. Must not know: pages.
"""

from __future__ import annotations

import os
import shutil

from playwright.sync_api import Browser, Playwright

WHERE = "LOGQUEUE_CHROMIUM"
REQUIRE = "LOGQUEUE_REQUIRE_BROWSER"
MISSING = (
    f"no Chromium: install the package chromium (Debian), or name the program in {WHERE}; "
    "the dashboard is not tested"
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP *.example 127.0.0.1",
)


def program() -> str | None:
    """The path of Chromium; None where there is none."""
    named = os.environ.get(WHERE)
    if named:
        return shutil.which(named)
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return next((path for path in found if path), None)


def is_required() -> bool:
    """Whether a run without Chromium must fail."""
    return os.environ.get(REQUIRE) == "1"


def launched(playwright: Playwright, *flags: str) -> Browser:
    """A headless Chromium with a profile of its own, gone with it."""
    path = program()
    assert path is not None, MISSING
    return playwright.chromium.launch(executable_path=path, headless=True, args=[*FLAGS, *flags])
