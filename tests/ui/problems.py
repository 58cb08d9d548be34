"""What a page must never do: errors in the console, violations of its policy, failed requests.

Owns: the list of them, and which ones a test expects. Must not know: what a page shows.
"""

from __future__ import annotations

import re

from playwright.sync_api import BrowserContext, ConsoleMessage, Request, Response, WebError

ABORTED = "net::ERR_ABORTED"
"""Of a stream that was open when its page was left, or a request that the page itself gave up."""


class Problems:
    """Everything that went wrong on the pages of one test."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._expected: list[re.Pattern[str]] = []

    def expect(self, pattern: str) -> None:
        """Do not count problems in which this pattern is found."""
        self._expected.append(re.compile(pattern))

    def watch(self, context: BrowserContext) -> None:
        """Collect from all pages of a browser context."""
        context.on("console", self._console)
        context.on("weberror", self._uncaught)
        context.on("requestfailed", self._failed)
        context.on("response", self._replied)

    def unwatch(self, context: BrowserContext) -> None:
        """Collect no more of it: what comes now is of the next test."""
        context.remove_listener("console", self._console)
        context.remove_listener("weberror", self._uncaught)
        context.remove_listener("requestfailed", self._failed)
        context.remove_listener("response", self._replied)

    def check(self) -> None:
        """Fail with everything that was found and not expected."""
        unexpected = [
            text for text in self.found if not any(known.search(text) for known in self._expected)
        ]
        once = "\n  ".join(dict.fromkeys(unexpected))
        assert not unexpected, f"the page had {len(unexpected)} problems:\n  {once}"

    def _add(self, text: str) -> None:
        self.found.append(text)

    def _uncaught(self, error: WebError) -> None:
        self._add(f"uncaught: {error.error}")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" or "Content Security Policy" in message.text:
            place = message.location.get("url", "")
            self._add(f"console: {message.text} ({place})")

    def _failed(self, request: Request) -> None:
        if request.failure != ABORTED:
            self._add(f"request failed: {request.method} {request.url}: {request.failure}")

    def _replied(self, response: Response) -> None:
        if response.status >= 400:
            self._add(f"status {response.status}: {response.request.method} {response.url}")
