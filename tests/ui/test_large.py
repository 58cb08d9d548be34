"""Much of everything: dead letters redriven while workers run, one job of many found."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from tests.effort import scaled
from tests.http.api import Api, seqs_of
from tests.http.expect import eventually, ok
from tests.http.process import ServerProcess
from tests.ui import pages

LETTERS = scaled(1_000, 10_000)
JOBS = scaled(5_000, 200_000)
NEEDLE = JOBS - JOBS // 3
BATCH = 500


@contextmanager
def working(server: ServerProcess, queue: str, done: list[object]) -> Iterator[None]:
    """A worker that acks whatever it gets."""
    stop = threading.Event()

    def work() -> None:
        with Api(server.base_url) as api:
            while not stop.is_set():
                jobs = api.claimed(queue, "worker", max=50, wait_ms=200)
                if jobs:
                    ok(api.ack(queue, seqs_of(jobs), "worker"))
                    done.extend(job["data"] for job in jobs)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_dead_letters_are_redriven_while_workers_run(
    page: Page, server: ServerProcess, seed: Api
) -> None:
    """All of one error at once; those of another error, and new jobs, are not touched."""
    seed.make_log("mail.dead")
    seed.make_queue("mail", dead_letter="mail.dead")
    for start in range(0, LETTERS, BATCH):
        seed.append_many("mail", [{"data": start + n} for n in range(BATCH)])
        seqs = seqs_of(seed.claimed("mail", "old", max=BATCH))
        ok(seed.reject("mail", seqs, "old", error="HTTP 503: upstream is down"))
    seed.append("mail", "poison")
    ok(seed.reject("mail", seqs_of(seed.claimed("mail", "old")), "old", error="cannot be parsed"))
    page.goto("/ui/dead-letters?queue=mail")
    pages.wait(page)
    done: list[object] = []
    with working(server, "mail", done):
        page.get_by_role("row").filter(has_text="HTTP 503").click()
        page.get_by_role("button", name="Redrive the group…").click()
        page.get_by_role("button", name=f"Redrive {LETTERS:,} letters").click()
        seed.append("mail", "new")
        expect(page.get_by_text(f"{LETTERS:,} letters of mail.dead moved back")).to_be_visible()
        assert eventually(lambda: len(done) == LETTERS + 1)
    assert sorted(map(str, done)) == sorted([*map(str, range(LETTERS)), "new"])
    expect(page.get_by_role("row").filter(has_text="cannot be parsed")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="HTTP 503")).to_have_count(0)


@pytest.fixture(scope="module")
def many(seed: Api) -> str:
    """A queue with many jobs, one of which has a tag."""
    seed.make_queue("many")
    for start in range(0, JOBS, 5_000):
        count = min(5_000, JOBS - start)
        seed.append_many(
            "many",
            [
                {"data": start + n, "tag": "needle" if start + n == NEEDLE else "hay"}
                for n in range(count)
            ],
        )
    return "many"


def test_one_job_of_many_is_found_by_its_tag(page: Page, many: str) -> None:
    """By the address alone, as in a link that a colleague has sent."""
    page.goto(f"/ui/queues/{many}/jobs?tag=needle")
    pages.wait_live(page)
    link = page.get_by_role("link", name=f"{NEEDLE + 1:,}").or_(
        page.get_by_role("link", name=str(NEEDLE + 1))
    )
    link.first.click()
    expect(page.locator("main h1")).to_contain_text(str(NEEDLE + 1))
