"""Chains, groups and batches of task calls, on the server in memory."""

from __future__ import annotations

import pytest

from logqueue.errors import BatchClosed
from logqueue.testing import MemoryServer
from logqueue.worker import App, Message, chain, current_job


def test_a_chain_hands_results_on(server: MemoryServer, app: App) -> None:
    """As the first argument of the next; a task that returns nothing hands on None."""
    seen: list[object] = []

    @app.task(queue="a")
    def fetch(name: str) -> dict[str, int]:
        return {"size": len(name)}

    @app.task(queue="b")
    async def resize(image: dict[str, int], width: int = 1) -> None:
        seen.append((image, width, current_job().input))

    @app.task(queue="c")
    def publish(nothing: None, where: str) -> None:
        seen.append((nothing, where))

    app.send(chain(fetch.s("cover"), resize.s(width=640), publish.with_options(tag="t").s("web")))
    server.drain(app)
    assert seen == [({"size": 5}, 640, {"size": 5}), (None, "web")]


def test_a_chain_is_checked_when_it_is_made(app: App) -> None:
    """Each call, with what it is given."""

    @app.task(queue="a")
    def first(n: int) -> int:
        return n

    @app.task(queue="a")
    def second(n: int, more: str) -> None:
        """Never runs."""

    for links in ((first.s("x"),), (first.s(1), second.s()), (first.s(1), second.s(2))):
        with pytest.raises(TypeError):
            chain(*links)
    assert len(chain(first.s(1), second.s("x")).then) == 1


def test_a_group_ends_with_its_last_job(server: MemoryServer, app: App) -> None:
    """Its callback runs once, with the counts."""
    told: list[object] = []

    @app.task(queue="a")
    def work(n: int) -> None:
        job = current_job()
        assert job.batch is not None
        if n == 2:
            job.done(then=[_in(job.batch, work.job(9))])

    @app.task(queue="b")
    def report(n: int) -> None:
        told.append((n, current_job().meta["$batch"]))

    group = app.group([work.job(n) for n in range(3)], on_done=report.job(17))
    assert group.counts().left == 3 and group.counts().state == "closed"
    with pytest.raises(TimeoutError):
        group.wait(0)
    server.drain(app)
    assert group.wait(1).done == 4
    counts = {"batch": group.name, "joined": 4, "done": 4, "failed": 0}
    assert told == [(17, counts)]


def _in(batch: str, message: Message) -> Message:
    message.batch = batch
    return message


def test_a_batch_is_closed_at_the_end_of_its_block(server: MemoryServer, app: App) -> None:
    """Jobs join it meanwhile."""

    @app.task(queue="a")
    def work() -> None:
        """Runs."""

    with app.batch("import") as batch:
        batch.add(work.job())
        batch.add(work.job(), work.job())
        assert batch.counts().state == "open"
    assert batch.counts().joined == 3
    server.drain(app)
    assert batch.wait(1).done == 3
    with pytest.raises(BatchClosed):
        batch.add(work.job())
