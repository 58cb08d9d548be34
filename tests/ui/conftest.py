"""Fixtures: a browser, pages that must have no problems, a server per file, what is put on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, expect, sync_playwright

from tests.http.api import Api
from tests.http.process import ServerProcess
from tests.ui.problems import Problems
from tools import chromium

TIMEOUT_MS = 20_000
"""Far above what anything takes, for machines that are busy."""

DESKTOP: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}

KEY_NAME = "logqueue.key"
"""Where the dashboard keeps its key, as JSON, in `sessionStorage`."""


class OpenPage(Protocol):
    """Opens a page in a browser context of its own: another person, with another key."""

    def __call__(
        self,
        path: str | None = None,
        *,
        key: str | None = None,
        phone: bool = False,
        dark: bool = False,
        **options: Any,
    ) -> Page: ...


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a process; closed with them: its event loop blocks others."""
    if chromium.program() is None:
        if chromium.is_required():
            pytest.fail(f"{chromium.REQUIRE}=1, but there is {chromium.MISSING}")
        pytest.skip(chromium.MISSING)
    with sync_playwright() as playwright:
        opened = chromium.launched(playwright)
        expect.set_options(timeout=TIMEOUT_MS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def server_settings() -> dict[str, str]:
    """Settings of this file's server; a file may have its own."""
    return {}


@pytest.fixture(scope="module")
def server_key() -> str | None:
    """A key for everything, where the settings have keys."""
    return None


@pytest.fixture(scope="module")
def server(
    browser: Browser,
    tmp_path_factory: pytest.TempPathFactory,
    server_settings: dict[str, str],
    server_key: str | None,
) -> Iterator[ServerProcess]:
    """One server per file. Asks for the browser first: without one, none is started."""
    directory = tmp_path_factory.mktemp("ui") / "data"
    process = ServerProcess(directory, settings=server_settings, probe_key=server_key).start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def seed(server: ServerProcess, server_key: str | None) -> Iterator[Api]:
    """Puts topics and jobs on the server, without the browser."""
    with Api(server.base_url, key=server_key) as api:
        yield api


@pytest.fixture
def problems() -> Iterator[Problems]:
    """What went wrong on the pages of this test: nothing, but for what the test expects."""
    found = Problems()
    yield found
    found.check()


@pytest.fixture
def open_page(browser: Browser, server: ServerProcess, problems: Problems) -> Iterator[OpenPage]:
    """Opens pages; all closed with the test."""
    opened: list[BrowserContext] = []

    def open_one(
        path: str | None = None,
        *,
        key: str | None = None,
        phone: bool = False,
        dark: bool = False,
        **options: Any,
    ) -> Page:
        context = browser.new_context(
            **{
                "base_url": server.base_url,
                "viewport": PHONE if phone else DESKTOP,
                "color_scheme": "dark" if dark else "light",
                "reduced_motion": "reduce",
                "is_mobile": phone,
                **options,
            }
        )
        opened.append(context)
        context.set_default_timeout(TIMEOUT_MS)
        problems.watch(context)
        if key is not None:
            kept = f"sessionStorage.setItem({json.dumps(KEY_NAME)}, {json.dumps(json.dumps(key))})"
            context.add_init_script(f"if (location.protocol === 'http:') {kept}")
        page = context.new_page()
        if path is not None:
            page.goto(path)
        return page

    yield open_one
    for context in opened:
        context.close()


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """A page at the width of a desk, light, without a key, on which nothing is open yet."""
    return open_page()
