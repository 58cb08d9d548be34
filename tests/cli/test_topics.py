"""`topics`, `create`, `configure`, `drop`, `stats`, `routers`, `bench`."""

from __future__ import annotations

from logqueue.client import Client
from tests.cli.conftest import Cli, Shell


def test_create_says_what_it_made_and_leaves_what_is_there(
    client: Client, topic: str, cli: Cli
) -> None:
    flags = ("--queue", "--durability", "fsync", "--lease", "90s", "--max-deliveries", "5")
    more = ("--dead-letter", "failed", "--ttl", "1d", "--set", "claim_jitter_ms=7")
    made = cli("create", topic, *flags, *more)
    assert (made.status, made.out, made.err) == (0, "", f"created queue {topic} (fsync)\n")
    config = client.topic(topic).config
    assert (config.type, config.durability, config.lease_ms) == ("queue", "fsync", 90_000)
    assert (config.max_deliveries, config.dead_letter) == (5, "failed")
    assert (config.ttl_ms, config.claim_jitter_ms) == (86_400_000, 7)

    again = cli("create", topic, "--queue")
    assert again.status == 1 and "exists already" in again.err
    assert client.topic(topic).config == config
    assert cli("create", topic, "--queue", "--exist-ok", "--json").json["created"] is False
    assert client.topic(topic).config == config


def test_a_log_is_no_queue_even_where_it_may_exist(topic: str, cli: Cli) -> None:
    assert cli("create", topic, "--json").json["config"]["type"] == "log"
    ended = cli("create", topic, "--queue", "--exist-ok")
    assert ended.status == 1 and "can never be changed" in ended.err


def test_a_value_out_of_bounds_is_the_servers_to_refuse(topic: str, cli: Cli) -> None:
    ended = cli("create", topic, "--set", "cap_records=many")
    assert ended.status == 1 and len(ended.err.splitlines()) == 1 and "cap_records" in ended.err


def test_configure_changes_what_is_named_only(client: Client, queue: str, cli: Cli) -> None:
    client.put_topic(queue, type="queue", max_deliveries=3)
    assert cli("configure", queue, "--lease", "5m", "--set", "max_in_flight=2").status == 0
    config = client.topic(queue).config
    assert (config.lease_ms, config.max_in_flight, config.max_deliveries) == (300_000, 2, 3)
    version = cli("stats", queue, "--json").json["config_version"]
    assert cli("configure", queue, "--lease", "6m", "--if-version", version).status == 0
    again = cli("configure", queue, "--lease", "7m", "--if-version", version)
    assert again.status == 1 and "has changed since version" in again.err
    assert client.topic(queue).config.lease_ms == 360_000


def test_ensure_creates_then_compares_and_changes_nothing(
    client: Client, topic: str, cli: Cli
) -> None:
    wanted = (topic, "--queue", "--max-deliveries", "4", "--dead-letter", f"{topic}.dead")
    made = cli("ensure", *wanted)
    assert (made.status, made.err) == (0, f"created queue {topic} (disk)\n")
    assert cli("ensure", *wanted).status == 0
    client.patch_topic(topic, max_deliveries=9, dead_letter=None)
    client.pause(topic)
    before = client.topic(topic).config
    differs = cli("ensure", *wanted)
    assert differs.status == 4
    assert sorted(differs.err.splitlines()) == [
        f'logqueue ensure: {topic}: dead_letter is null, not "{topic}.dead"',
        f"logqueue ensure: {topic}: max_deliveries is 9, not 4",
    ]
    told = cli("ensure", *wanted, "--json")
    assert told.status == 4 and told.json["differs"]["max_deliveries"] == {"have": 9, "want": 4}
    assert client.topic(topic).config == before and before.paused
    assert cli("ensure", topic, "--set", "type=log").status == 1, "a type is not drift"


def test_unknown_config_is_refused(topic: str, cli: Cli) -> None:
    for command in ("create", "ensure", "configure"):
        ended = cli(command, topic, "--set", "max_delivery=1")
        assert ended.status == 2 and "did you mean max_deliveries?" in ended.err
    for value in ("NaN", "-Infinity", "1e999", '{"factor": NaN}'):
        ended = cli("create", topic, "--set", f"retry_backoff={value}")
        assert ended.status == 2 and ended.err.count("\n") == 1
    ended = cli("configure", topic, "--set", "paused=true")
    assert ended.status == 2 and "logqueue pause" in ended.err


def test_topics_is_a_table_or_lines(client: Client, queue: str, cli: Cli) -> None:
    client.append(queue, ["x", "y"], create=True)
    shown = cli("topics", "--prefix", queue)
    head, row = shown.out.splitlines()
    assert head.split()[:3] == ["topic", "type", "records"]
    assert row.split()[:3] == [queue, "queue", "2"]
    (entry,) = cli("topics", "--prefix", queue, "--json").lines
    assert entry["topic"] == queue and entry["queue"]["ready"] == 2


def test_drop_if_empty(client: Client, topic: str, cli: Cli) -> None:
    client.append(topic, [1], create=True)
    held = cli("drop", topic, "--if-empty")
    assert held.status == 1 and client.topic(topic).count == 1
    client.delete_records(topic, before_seq=10)
    assert cli("drop", topic, "--if-empty", "--json").json["deleted"] is True


def test_stats_of_all_and_of_one(client: Client, queue: str, cli: Cli) -> None:
    client.append(queue, ["x"], create=True)
    shown = cli("stats", "--prefix", queue).out.splitlines()
    assert shown[0].startswith("logqueue ") and "1 topic, 1 record, 3 B" in shown[0]
    assert shown[2].split()[0] == queue
    answer = cli("stats", "--prefix", queue, "--json").json
    assert answer["server"]["status"] == "ok" and len(answer["topics"]) == 1
    one = cli("stats", queue).out
    assert "ready" in one and "config.lease_ms" in one
    assert cli("stats", queue, "--json").json["queue"]["ready"] == 1


def test_stats_are_watched_with_rates(shell: Shell, client: Client, queue: str) -> None:
    process = shell.start("stats", "--prefix", queue, "--watch", "--every", "100ms")
    assert process.stdout is not None
    client.append(queue, [1, 2], create=True, config={"type": "queue"})
    shown: list[str] = []
    while not shown:
        line = process.stdout.readline().decode().split()
        if line and line[0] == queue and line[4] != "0.0":
            shown = line
    # Its records, size, and rate; the jobs that are ready.
    assert (shown[1], shown[4], shown[5]) == ("2", "0.2", "2")


def test_routers_are_made_listed_and_deleted(client: Client, topic: str, cli: Cli) -> None:
    source, dest = f"{topic}.from", f"{topic}.to"
    assert cli("routers", "create", topic, source, dest, "--tag", "vip*").status == 0
    assert client.router(topic).filter == ["tag", "Glob", "vip*"]
    (entry,) = cli("routers", "list", "--from", source, "--json").lines
    assert (entry["router"], entry["dest"]) == (topic, dest)
    assert topic in cli("routers", "list", "--to", dest).out
    assert cli("routers", "delete", topic).status == 0
    assert cli("routers", "list", "--from", source).status == 3


def test_bench_measures_and_leaves_nothing_behind(client: Client, cli: Cli) -> None:
    measured = cli("bench", "--jobs", "25", "--batch", "10", "--json")
    assert measured.status == 0
    rows = measured.json["rows"]
    assert [(row["name"], row["batch"]) for row in rows] == [
        *((name, 10) for name in ("append", "claim", "ack")),
        *((name, 1) for name in ("append", "claim", "ack")),
    ]
    assert all(row["jobs"] == 25 and row["per_s"] > 0 for row in rows)
    assert cli("bench", "--jobs", "2", "--batch", "1").out.count("\n") == 4
    assert not [*client.topics(prefix="logqueue-bench.")]
