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
from tests.ui.shared import FLAGS, SharedContext
from tools import chromium

TIMEOUT_MS = 60_000
"""Far above what anything takes, for machines that are busy."""

DESKTOP: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 844}

KEY_NAME = "logqueue.key"
"""Where the dashboard keeps its key, as JSON, in `sessionStorage`."""


class OpenPage(Protocol):
    """Opens a page: another person, with another key. With `own`, in a browser context that is
    new even if the test has no other."""

    def __call__(
        self,
        path: str | None = None,
        *,
        key: str | None = None,
        phone: bool = False,
        dark: bool = False,
        own: bool = False,
    ) -> Page: ...


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a process; closed with them: its event loop blocks others."""
    if chromium.program() is None:
        if chromium.is_required():
            pytest.fail(f"{chromium.REQUIRE}=1, but there is {chromium.MISSING}")
        pytest.skip(chromium.MISSING)
    with sync_playwright() as playwright:
        opened = chromium.launched(playwright, *FLAGS)
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


def context_options(base_url: str, *, phone: bool = False, dark: bool = False) -> dict[str, Any]:
    """What a browser context is made with."""
    return {
        "base_url": base_url,
        "viewport": PHONE if phone else DESKTOP,
        "color_scheme": "dark" if dark else "light",
        "reduced_motion": "reduce",
        "is_mobile": phone,
    }


@pytest.fixture(scope="package")
def shared_context(browser: Browser) -> Iterator[SharedContext]:
    """The context of whoever needs none of their own."""

    def make(base_url: str) -> BrowserContext:
        context = browser.new_context(**context_options(base_url))
        context.set_default_timeout(TIMEOUT_MS)
        return context

    shared = SharedContext(make)
    yield shared
    shared.close()


@pytest.fixture
def open_page(
    browser: Browser, shared_context: SharedContext, server: ServerProcess, problems: Problems
) -> Iterator[OpenPage]:
    """Opens pages; all closed with the test. Each has a browser context of its own, but for the
    first plain one."""
    opened: list[BrowserContext] = []
    shared: list[BrowserContext] = []

    def context_of(phone: bool, dark: bool, own: bool) -> BrowserContext:
        if not (phone or dark or own or shared):
            shared.append(shared_context.taken(server.base_url))
            return shared[0]
        options = context_options(server.base_url, phone=phone, dark=dark)
        opened.append(browser.new_context(**options))
        opened[-1].set_default_timeout(TIMEOUT_MS)
        return opened[-1]

    def open_one(
        path: str | None = None,
        *,
        key: str | None = None,
        phone: bool = False,
        dark: bool = False,
        own: bool = False,
    ) -> Page:
        context = context_of(phone, dark, own)
        problems.watch(context)
        page = context.new_page()
        if key is not None:
            kept = f"sessionStorage.setItem({json.dumps(KEY_NAME)}, {json.dumps(json.dumps(key))})"
            page.add_init_script(f"if (location.protocol === 'http:') {kept}")
        if path is not None:
            page.goto(path)
        return page

    yield open_one
    for context in opened:
        context.close()
    for context in shared:
        shared_context.given_back()
        problems.unwatch(context)


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """A page at the width of a desk, light, without a key, on which nothing is open yet."""
    return open_page()
