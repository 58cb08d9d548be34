"""`logqueue schedules`."""

from __future__ import annotations

from logqueue.client import Client
from tests.cli.conftest import Cli


def test_schedules_are_made_shown_run_and_deleted(client: Client, topic: str, cli: Cli) -> None:
    client.ensure_topic(topic, type="queue")
    made = cli(
        "schedules", "put", topic, topic, "--cron", "0 3 * * *", "--tz", "Europe/Berlin",
        "--data", '{"a":1}', "--key", "k", "--unique", "running",
        "--jitter", "5s", "--catch-up", "none",
    )  # fmt: skip
    assert made.status == 0 and f"created schedule {topic}" in made.err and "next: " in made.err
    found = client.schedule(topic)
    assert (found.cron, found.timezone, found.jitter_ms) == ("0 3 * * *", "Europe/Berlin", 5000)
    assert (found.record, found.catch_up) == (
        {"data": {"a": 1}, "key": "k", "unique": "running"},
        "none",
    )
    listed = cli("schedules", "list", "--topic", topic)
    assert "0 3 * * * Europe/Berlin" in listed.out and listed.out.splitlines()[1].endswith("ok")
    (entry,) = cli("schedules", "list", "--prefix", topic, "--json").lines
    assert entry["next_at"] == found.next_at
    assert cli("schedules", "show", topic, "--next", "3").out.count("\nnext ") == 3
    assert "created job 1" in cli("schedules", "run", topic).err
    assert cli("schedules", "run", topic, "--json").lines[0]["result"] == "replaced"
    assert cli("schedules", "pause", topic).status == 0 and client.schedule(topic).paused
    assert cli("schedules", "list", "--topic", topic).out.splitlines()[1].endswith("paused")
    assert "next: " in cli("schedules", "resume", topic).err
    assert cli("schedules", "delete", topic).status == 0
    assert cli("schedules", "delete", topic).status == 3


def test_an_existing_one_is_only_compared(client: Client, topic: str, cli: Cli) -> None:
    client.ensure_topic(topic, type="queue")
    put = ("schedules", "put", topic, topic, "--if-absent")
    assert cli(*put, "--every", "5m", "--record", '{"data": null, "tag": "t"}').status == 0
    assert cli(*put, "--every", "5m", "--record", '{"tag": "t", "data": null}').status == 0
    differs = cli(*put, "--every", "1h", "--data", "null", "--tag", "t")
    assert differs.status == 4 and "every_ms is 300000, not 3600000" in differs.err
    assert client.schedule(topic).every_ms == 300_000


def test_a_preview_needs_no_schedule(cli: Cli) -> None:
    shown = cli("schedules", "preview", "@daily", "--tz", "Asia/Tokyo", "--next", "2")
    assert shown.status == 0 and len(shown.out.splitlines()) == 2
    (found,) = cli("schedules", "preview", "0 0 * * *", "--next", "2", "--json").lines
    assert found["next"][1] - found["next"][0] == 86_400_000
    assert cli("schedules", "preview", "0 0 * *").status == 1


def test_what_cannot_be_meant(cli: Cli) -> None:
    put = ("schedules", "put", "s", "q")
    for arguments in (
        (*put, "--data", "1"),
        (*put, "--data", "1", "--cron", "* * * * *", "--every", "5m"),
        (*put, "--every", "5m"),
        (*put, "--every", "5m", "--data", "1", "--record", '{"data":1}'),
        (*put, "--every", "5m", "--data", "NaN"),
        (*put, "--every", "5m", "--record", "[]"),
        (*put, "--every", "5m", "--record", '{"data":1,"nosuch":2}'),
        (*put, "--every", "5m", "--record", '{"data":1}', "--key", "k"),
    ):
        assert cli(*arguments).status == 2, arguments
