"""The page Server: health in words, what is used, a backup, the log level."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.http.api import Api
from tests.http.expect import ok
from tests.http.process import ServerProcess
from tests.ui import axe, pages
from tests.ui.conftest import OpenPage
from tests.ui.problems import Problems

KEYS = "root,reader:read,narrow:read:mine-"


@pytest.fixture(scope="module")
def server_settings() -> dict[str, str]:
    """Keys, and a limit that is met."""
    return {"API_KEYS": KEYS, "MAX_TOPICS": "2"}


@pytest.fixture(scope="module")
def server_key() -> str | None:
    """The key for everything."""
    return "root"


@pytest.fixture
def page(open_page: OpenPage, seed: Api) -> Page:
    """The page, on a server with two topics."""
    for name in ("orders", "visits"):
        seed.put(name, durability="fsync")
        seed.write(name, [1, 2, 3])
    opened = open_page("/ui/server", key="root")
    pages.wait(opened)
    return opened


def test_what_is_wrong_is_on_top_in_words(page: Page) -> None:
    health = page.get_by_role("region", name="Health")
    expect(health).to_contain_text("Clients are affected: 1 problem.")
    expect(health).to_contain_text("100% of the maximum number of topics is in use (2 of 2).")
    expect(health).to_contain_text("Use less, or raise LOGQUEUE_MAX_TOPICS and restart.")
    expect(page.get_by_role("region", name="Durability")).to_contain_text("the sync to the disk")
    expect(page.get_by_role("region", name="Settings")).to_contain_text("LOGQUEUE_API_KEYSset (3)")
    expect(page.get_by_role("region", name="Disk and logs")).to_contain_text("Jobs log")
    assert "narrow" not in page.inner_text("main")
    pages.check_width(page)
    axe.check(page)


def test_the_log_level_is_changed_and_put_back(page: Page, seed: Api) -> None:
    card = page.get_by_role("region", name="Log level")
    card.get_by_role("button", name="debug").click()
    expect(card).to_contain_text("back to info in")
    assert ok(seed.send("GET", "/v0/server"))["log_level"]["level"] == "debug"
    page.get_by_role("button", name="Undo").click()
    expect(card.get_by_role("button", name="info")).to_have_attribute("aria-pressed", "true")
    assert ok(seed.send("GET", "/v0/server"))["log_level"]["level"] == "info"


def test_a_backup_is_saved_with_a_key(page: Page, tmp_path: Path) -> None:
    page.evaluate("() => { delete window.showSaveFilePicker; }")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download a backup").click()
    path = tmp_path / saved.value.suggested_filename
    saved.value.save_as(path)
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as archive:
        assert archive.getnames()[-1].endswith("/LOGS")
    expect(page.get_by_role("region", name="Notices")).to_contain_text("The backup is saved")


def test_what_a_key_may_not_do_is_not_there(open_page: OpenPage, seed: Api) -> None:
    reader = open_page("/ui/server", key="reader", dark=True)
    card = reader.get_by_role("region", name="Log level")
    expect(card).to_contain_text("info")
    expect(card.get_by_role("button")).to_have_count(0)
    axe.check(reader, colours_only=True)


def test_a_key_with_one_prefix_is_told_why(open_page: OpenPage) -> None:
    narrow = open_page("/ui/server", key="narrow", phone=True)
    expect(narrow.locator("main")).to_contain_text("This key may not see the server as a whole")


def test_a_server_that_goes_away_is_said_and_comes_back(
    open_page: OpenPage, server: ServerProcess, problems: Problems
) -> None:
    problems.expect(r"ERR_|/v0/stats/stream|503")
    page = open_page("/ui/server", key="root", phone=True)
    health = page.get_by_role("region", name="Health")
    expect(health).to_contain_text("Clients are affected")
    pages.check_width(page)
    server.kill()
    expect(health).to_contain_text("The server does not answer; the last state is shown.")
    server.flags += ["--port", str(server.port)]
    server.start()
    expect(health).not_to_contain_text("does not answer")
