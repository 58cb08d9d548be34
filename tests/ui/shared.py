"""One browser context that tests take turns in: what a new one costs, a page in it does not.

A context of its own begins with a process, which takes a second to start and to compile the
dashboard. Owns: when that context is made again, what is cleared between two tests. Must not know:
what a page shows.
"""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import BrowserContext, Page

FLAGS = ("--process-per-site",)
"""Pages of one context share a process while one of them is open."""

EMPTY = '<link rel="icon" href="data:,">'
"""A page on the origin of the server, which is asked for nothing."""


class SharedContext:
    """A context without options, for one test at a time."""

    def __init__(self, make: Callable[[str], BrowserContext]) -> None:
        """Args: make: Opens a context for pages below a URL."""
        self._make = make
        self._base_url = ""
        self._context: BrowserContext | None = None
        self._kept: Page | None = None

    def taken(self, base_url: str) -> BrowserContext:
        """It, without anything that the test before has left."""
        if self._context is None or base_url != self._base_url:
            self.close()
            self._context, self._base_url = self._make(base_url), base_url
            self._kept = self._context.new_page()
            self._kept.route(
                "**/*", lambda route: route.fulfill(body=EMPTY, content_type="text/html")
            )
            self._kept.goto("/kept")
        return self._context

    def given_back(self) -> None:
        """Close the pages of the test, and forget what they stored."""
        if self._context is None or self._kept is None:
            return
        for page in self._context.pages:
            if page is not self._kept:
                page.close()
        self._context.clear_cookies()
        self._kept.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")

    def close(self) -> None:
        """End it; another one is made for whoever asks next."""
        if self._context is not None:
            self._context.close()
        self._context = self._kept = None
