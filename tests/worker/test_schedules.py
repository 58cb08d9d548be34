"""Schedules that an app declares, and a server in memory that fires them."""

from __future__ import annotations

import logging

import pytest

from logqueue.client import NewRecord
from logqueue.shapes import Record
from logqueue.testing import MemoryServer
from logqueue.worker import App, Cron, Every, check_queues, current_job

HOUR_S = 3600.0


def test_a_task_runs_by_itself(server: MemoryServer, app: App) -> None:
    runs: list[tuple[str, float]] = []

    @app.task(queue="q", schedule=Every(minutes=10, args=("ann",)))
    def greet(name: str) -> None:
        runs.append((name, server.now()))

    worker = server.start(app)
    server.advance(1800.5)
    assert runs == [("ann", 600.0), ("ann", 1200.0), ("ann", 1800.0)]
    found = server.client.schedule("q.greet")
    assert (found.every_ms, found.fired, found.topic) == (600_000, 3, "q")
    server.stop(worker)
    server.advance(600.0)
    worker = server.start(app)
    server.advance(1.0)
    assert len(runs) == 4 and server.client.schedule("q.greet").fired == 4


def test_several_times_with_names_of_their_own(server: MemoryServer, app: App) -> None:
    hours: list[int] = []

    @app.task(
        queue="q",
        schedule=[
            Cron("0 3 * * *", tz="Europe/Berlin", name="q.night", kwargs={"deep": True}),
            Cron("@hourly", name="q.hours", jitter=2.0, catch_up="none", tag="t"),
        ],
    )
    async def check(deep: bool = False) -> None:
        meta = current_job().meta
        assert isinstance(meta, dict)
        if deep:
            assert meta["schedule"] == "q.night"
            hours.append(meta["scheduled_for"] // 3_600_000 % 24)

    server.start(app)
    server.advance(48 * HOUR_S)
    assert hours == [2, 2]
    hourly = server.client.schedule("q.hours")
    assert (hourly.fired, hourly.jitter_ms, hourly.catch_up) == (48, 2000, "none")
    assert hourly.record["tag"] == "t"


def test_what_differs_is_reported_and_never_changed(
    server: MemoryServer, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(queue="q", schedule=Cron("0 3 * * *"))
    def report() -> None: ...

    assert check_queues(app) == []
    server.client.ensure_topic("q", type="queue", leases_durable=True)
    server.client.put_schedule("q.report", "q", NewRecord({"other": 1}), cron="5 3 * * *")
    server.client.pause_schedule("q.report")
    with caplog.at_level(logging.WARNING, "logqueue.worker"):
        server.start(app)
        server.advance(1.0)
    drift = [
        'schedule q.report: cron is "5 3 * * *", the app declares "0 3 * * *"',
        'schedule q.report: record is {"data":{"other":1}}, the app declares '
        '{"data":{"task":"report","args":[],"kwargs":{}}}',
    ]
    assert check_queues(app) == drift
    said = [record.getMessage() for record in caplog.records]
    assert [text.partition("; nothing was changed")[0] for text in said] == drift
    found = server.client.schedule("q.report")
    assert (found.cron, found.paused) == ("5 3 * * *", True)


def test_a_server_that_is_away_gets_the_declaration_later(server: MemoryServer, app: App) -> None:
    @app.task(queue="q", schedule=Every(seconds=30))
    def tick() -> None: ...

    worker = server.start(app)
    server.cut_off(worker)
    server.advance(5.0)
    server.reconnect(worker)
    server.advance(120.0)
    assert server.client.schedule("q.tick").fired >= 1


def test_a_restart_between_two_firings(server: MemoryServer, app: App) -> None:
    server.client.ensure_topic("q", type="queue", durability="fsync")
    server.client.put_schedule("s", "q", 1, every_ms=60_000, catch_up="all")
    first = server.client.schedule("s").next[0]
    server.advance(150.0)
    server.restart(kill=True)
    server.advance(120.0)
    times = [
        record.meta["scheduled_for"]
        for record in server.client.read("q")
        if isinstance(record, Record)
    ]
    assert times == [first + place * 60_000 for place in range(4)]


def test_firings_are_counted(server: MemoryServer) -> None:
    def counters() -> list[float]:
        text = server.client.metrics_text()
        names = ("firings_total", "firings_late_total", "firings_missed_total", "failures_total")
        lines = dict(line.split(" ") for line in text.splitlines() if line.startswith("logqueue_s"))
        refused = lines["logqueue_schedules_refused"]
        return [float(lines[f"logqueue_schedule_{name}"]) for name in names] + [float(refused)]

    server.client.ensure_topic("q", type="queue")
    server.client.put_schedule("s", "q", 1, every_ms=60_000)
    server.advance(180.0)
    assert counters() == [3, 0, 0, 0, 0]
    server.client.drop_topic("q")
    server.advance(180.0)
    fired, late, missed, failed, refused = counters()
    assert (fired, late, missed, refused) == (3, 0, 0, 1) and failed > 3
    found = server.client.schedule("s")
    assert found.last_error is not None and found.last_error.code == "topic_not_found"
    server.client.ensure_topic("q", type="queue")
    server.advance(60.0)
    assert counters()[1:3] == [1, 2] and counters()[4] == 0
    assert server.client.schedule("s").last_error is None


def test_what_cannot_be_declared(app: App) -> None:
    def work(name: str) -> None: ...

    with pytest.raises(TypeError):
        app.task(queue="q", schedule=Every(minutes=1))(work)
    with pytest.raises(ValueError, match="at least a second"):
        app.task(queue="q", schedule=Every(args=("a",)))(work)
    twice = [Every(minutes=1, args=("a",)), Every(minutes=2, args=("b",))]
    with pytest.raises(ValueError, match=r"two schedules named 'q\.work'"):
        app.task(queue="q", schedule=twice)(work)
    app.task(queue="q", schedule=Every(minutes=1, args=("a",), name="s"))(work)
    with pytest.raises(ValueError, match="schedule 's' exists already"):
        app.task(queue="q", name="b", schedule=Every(minutes=1, args=("a",), name="s"))(work)
