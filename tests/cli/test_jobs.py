"""`claim`, `ack`, `nack`, `reject`, `extend`, and looking after jobs."""

from __future__ import annotations

import json

from logqueue.client import Client, NewRecord
from tests.cli.conftest import Cli, Shell, finish


def test_what_one_command_claims_another_one_settles(client: Client, queue: str, cli: Cli) -> None:
    client.append(queue, [NewRecord({"n": 1}, tag="t"), {"n": 2}, {"n": 3}])
    claimed = cli("claim", queue, "--max", "3", "--lease", "1m", "--json")
    assert [job["$seq"] for job in claimed.lines] == [1, 2, 3]
    first, second, third = claimed.lines
    assert first["$tag"] == "t" and "last_error" not in first
    acked = cli("ack", queue, "-", "--json", stdin=f"{json.dumps(first)}\n\n".encode())
    assert acked.status == 0 and acked.json["counted"] == [1]
    assert cli("ack", queue, f"2:{second['lease_id']}").status == 0
    given = cli("nack", queue, "3", "--error", "bad day", "--delay", "1h")
    assert (given.status, given.err) == (0, f"gave back 1 job of {queue}\n")
    assert third["$seq"] == 3
    state = client.topic(queue).queue
    assert state is not None and (state.ready, state.in_flight) == (0, 0)
    assert client.topic(queue).count == 1


def test_a_claim_is_a_table_for_people(client: Client, queue: str, cli: Cli) -> None:
    client.append(queue, [{"src": "a.png"}])
    shown = cli("claim", queue).out.splitlines()
    assert shown[0].split() == ["seq", "lease", "run", "until", "data"]
    assert shown[1].split()[0] == "1" and shown[1].rstrip().endswith('{"src":"a.png"}')


def test_a_number_too_large_for_a_float_is_a_job_like_any_other(queue: str, cli: Cli) -> None:
    assert cli("append", queue, "-", stdin=b"1e999\n").status == 0
    claimed = cli("claim", queue, "--json")
    assert claimed.out.count('"data":1E+999,')
    assert cli("jobs", queue).status == 0
    assert cli("ack", queue, "-", stdin=claimed.out.encode()).status == 0


def test_nothing_to_claim_is_status_3(queue: str, cli: Cli) -> None:
    ended = cli("claim", queue, "--json")
    assert (ended.status, ended.out) == (3, "") and "no job to claim" in ended.err


def test_a_claim_can_wait_for_a_job(shell: Shell, client: Client, queue: str) -> None:
    process = shell.start("claim", queue, "--wait", "30s", "--json")
    client.append(queue, [1])
    (job,) = finish(process).lines
    assert job["data"] == 1


def test_a_lease_that_is_somebody_elses_is_named(client: Client, queue: str, cli: Cli) -> None:
    client.append(queue, [1, 2])
    assert cli("claim", queue).status == 0
    mixed = cli("ack", queue, "1", "2", "--json")
    assert mixed.status == 1 and mixed.json["counted"] == [1] and mixed.json["skipped"] == [2]
    assert "not leased to cli@" in mixed.err and ": 2;" in mixed.err
    other = client.claim(queue, node="other").jobs[0]
    assert cli("nack", queue, "2").status == 1
    assert cli("nack", queue, f"2:{other.lease_id}", "--node", "other").status == 0


def test_leases_are_extended(client: Client, queue: str, cli: Cli) -> None:
    client.append(queue, [1])
    job = cli("claim", queue, "--lease", "10s", "--json").json
    extended = cli("extend", queue, "1", "--lease", "1h", "--json")
    assert extended.status == 0
    assert extended.json["deadlines"]["1"] > job["deadline"] + 3_000_000
    assert cli("extend", queue, "1", "2", "--lease", "1m").status == 1


class TestLookingAfter:
    """Jobs are listed, cancelled, released, moved back."""

    def test_jobs_are_listed(self, client: Client, queue: str, cli: Cli) -> None:
        client.append(
            queue, [NewRecord(1, tag="a.1", key="k"), NewRecord(2, delay_ms=3_600_000), 3]
        )
        assert [job["$seq"] for job in cli("jobs", queue, "--json").lines] == [1, 2, 3]
        (delayed,) = cli("jobs", queue, "--state", "delayed,held", "--json").lines
        assert (delayed["$seq"], delayed["state"], delayed["data"]) == (2, "delayed", 2)
        assert [j["$seq"] for j in cli("jobs", queue, "--tag", "a*", "--json").lines] == [1]
        assert [j["$seq"] for j in cli("jobs", queue, "--key", "k", "--json").lines] == [1]
        page = cli("jobs", queue, "--after", "1", "--limit", "1")
        assert page.out.splitlines()[1].split()[:2] == ["2", "delayed"]
        assert "--after 2" in page.err
        assert cli("jobs", queue, "--after", "3").status == 3

    def test_one_job_has_a_history(self, client: Client, queue: str, cli: Cli) -> None:
        client.append(queue, ["x"])
        cli("claim", queue, "--node", "w1")
        cli("nack", queue, "1", "--node", "w1", "--error", "bad\x1bday", "--delay", "1h")
        answer = cli("job", queue, "1", "--json").json
        assert answer["job"]["last_error"] == "bad\x1bday"
        shown = cli("job", queue, "1").out
        assert "delayed" in shown and "bad\\x1bday" in shown and "w1" in shown
        assert cli("job", queue, "2").status == 3

    def test_results(self, client: Client, queue: str, cli: Cli) -> None:
        client.patch_topic(queue, results={})
        assert cli("append", queue, "--data", '"a"', "--data", '"b"', "--wait", "1ms").status == 1
        jobs = client.claim(queue, max=2).jobs
        client.ack(queue, jobs[0], results=[{"n": 1}])
        client.reject(queue, jobs[1], error="no such user")
        mixed = cli("result", queue, "2", "1", "--wait", "1m")
        assert (mixed.status, mixed.out) == (1, '{"n":1}\n')
        assert "job 2" in mixed.err and "is dead: no such user" in mixed.err
        assert [job["state"] for job in cli("result", queue, "1", "9", "--json").lines] == [
            "done", "unknown",
        ]  # fmt: skip
        shown = cli("job", queue, "1").out
        assert "done" in shown and '{"n":1}' in shown

    def test_workers_are_listed(self, client: Client, queue: str, cli: Cli) -> None:
        assert cli("workers", queue).status == 3
        client.append(queue, [1])
        cli("claim", queue, "--node", "w1")
        (worker,) = cli("workers", queue, "--json").lines
        assert (worker["node"], worker["in_flight"]) == ("w1", 1)
        assert "w1" in cli("workers", queue).out

    def test_cancel(self, client: Client, queue: str, cli: Cli) -> None:
        client.append(queue, [1, 2, NewRecord(3, key="k")])
        cli("claim", queue)
        held = cli("cancel", queue, "1")
        assert held.status == 1 and "--force" in held.err
        assert cli("cancel", queue, "1", "--force").status == 0
        assert cli("cancel", queue, "2", "--json").json["cancelled"] is True
        assert cli("cancel", queue, "--key", "k").status == 0
        gone = cli("cancel", queue, "--key", "k")
        assert gone.status == 3 and "no such job" in gone.err
        assert client.topic(queue).count == 0

    def test_pause_and_resume(self, client: Client, queue: str, cli: Cli) -> None:
        client.append(queue, [1])
        assert cli("pause", queue).err == f"{queue} is paused\n"
        refused = cli("claim", queue)
        assert refused.status == 3 and "(paused)" in refused.err
        assert "paused" in cli("stats", "--prefix", queue).out
        assert cli("resume", queue, "--json").json["paused"] is False
        assert cli("claim", queue).status == 0

    def test_purge(self, client: Client, queue: str, cli: Cli) -> None:
        client.append(queue, [1, NewRecord(2, delay_ms=3_600_000)])
        unanswered = cli("purge", queue, "--all")
        assert unanswered.status == 2 and client.topic(queue).count == 2
        assert cli("purge", queue, "--state", "delayed", "--yes").err.startswith("removed 1 job")
        assert cli("purge", queue, "--all", "--yes", "--json").json["purged"]["ready"] == 1
        assert cli("purge", queue, "--all", "--yes").status == 3

    def test_held_jobs_are_released(self, client: Client, topic: str, cli: Cli) -> None:
        client.put_topic(topic, type="queue", max_deliveries=1, on_exhausted="hold")
        client.append(topic, [1])
        client.nack(topic, client.claim(topic).jobs, delay_ms=0)
        assert cli("claim", topic).status == 3
        assert [job["state"] for job in cli("jobs", topic, "--json").lines] == ["held"]
        assert cli("release", topic, "1").status == 0
        again = cli("release", topic, "1")
        assert again.status == 1 and "not held: 1" in again.err
        assert cli("claim", topic).status == 0

    def test_dead_letters_of_one_queue_among_several(
        self, client: Client, topic: str, cli: Cli
    ) -> None:
        dead, one, other = f"{topic}.dead", f"{topic}.one", f"{topic}.other"
        for name in (one, other):
            client.put_topic(name, type="queue", dead_letter=dead)
            assert cli("dead", name).status == 3
            client.append(name, [NewRecord({"of": name}, tag=f"t.{n}") for n in range(3)])
            cli("claim", name, "--max", "3")
            assert cli("reject", name, "1", "2", "3", "--error", "no good").status == 0
        assert len(cli("dead", dead, "--json").lines) == 6
        mine = cli("dead", one, "--json").lines
        assert {letter["data"]["of"] for letter in mine} == {one}
        assert "no good" in cli("dead", one, "--reason", "rejected", "--limit", "1").out
        assert cli("dead", one, "--reason", "expired").status == 3

        would = cli("redrive", one, "--dry-run", "--json").json
        assert (would["redriven"], would["dry_run"]) == (3, True)
        tagged = cli("redrive", one, "--tag", "t.1", "--json").json
        assert (tagged["redriven"], tagged["targets"]) == (1, [one])
        assert cli("redrive", one).err == f"moved 2 dead letters to {one}\n"
        assert cli("redrive", one).status == 3
        assert client.topic(one).count == 3
        assert cli("redrive", dead, "--limit", "2", "--to", one, "--json").json["redriven"] == 2
        assert cli("redrive", dead).err == f"moved 1 dead letter to {other}\n"
        assert cli("redrive", dead).status == 3

    def test_dead_letters_in_groups(self, client: Client, topic: str, cli: Cli) -> None:
        dead = f"{topic}.dead"
        client.put_topic(topic, type="queue", dead_letter=dead)
        assert cli("dead-letters", topic).status == 3
        client.append(topic, [1, 2, 3, 4])
        for job, error in zip(
            client.claim(topic, max=4).jobs, ("no user 10001", "no user 10002", "bad", "bad"),
            strict=True,
        ):  # fmt: skip
            client.reject(topic, [job], error=error)
        shown = cli("dead-letters", topic).out.splitlines()
        assert shown[1].split()[:3] == ["2", topic, "rejected"]
        assert {line.split("  ")[-1].strip() for line in shown[1:]} == {"no user *", "bad"}
        assert cli("dead-letters", dead, "--json").json["total"] == 4
        would = cli("drop-letters", topic, "--error", "no user *", "--dry-run", "--json").json
        assert (would["dropped"], would["dry_run"]) == (2, True)
        assert cli("drop-letters", topic, "--error", "bad").status == 2
        dropped = cli("drop-letters", topic, "--error", "bad", "--yes")
        assert dropped.err == f"deleted 2 dead letters of {dead}\n"
        assert cli("drop-letters", topic, "--error", "bad", "--yes").status == 3
        moved = cli("redrive", topic, "--error", "no user *", "--rate", "500")
        assert moved.err == f"moved 2 dead letters to {topic}\n"
        assert cli("dead-letters", topic).status == 3

    def test_a_job_is_edited(self, client: Client, queue: str, cli: Cli) -> None:
        client.append(queue, [NewRecord({"a": 1}, tag="t", delay_ms=60_000)])
        edited = cli("edit", queue, "1", "--data", "-", "--tag", "", stdin=b'{"a": 2}')
        assert edited.err == f"changed job 1 of {queue}, which is delayed\n"
        assert cli("edit", queue, "1", "--retry", "--json").json["state"] == "ready"
        (job,) = client.claim(queue).jobs
        assert (job.data, job.tag) == ({"a": 2}, None)
        assert cli("edit", queue, "1", "--data", "3").status == 1
        assert cli("edit", queue, "1").status == 2
        assert cli("edit", queue, "1", "--data", "{").status == 2


def test_jobs_are_listed_by_every_filter(client: Client, queue: str, cli: Cli) -> None:
    client.append(queue, [NewRecord({"mail": "a@b.c"}, tag="t", key="k"), {"n": 2}, {"n": 3}])
    client.claim(queue, node="w9", lease_ms=60_000)
    for flags in (
        ("--text", "a@b"), ("--node", "w9"), ("--min-deliveries", "1"), ("--key", "k"),
        ("--tag", "t*", "--state", "in_flight", "--max-age", "1h"),
    ):  # fmt: skip
        assert [job["$seq"] for job in cli("jobs", queue, *flags, "--json").lines] == [1], flags
    assert cli("jobs", queue, "--min-age", "1h").status == 3
    assert len(cli("jobs", queue, "--limit", "1", "--all", "--json").lines) == 3
    assert cli("jobs", queue, "--limit", "2", "--json").lines[-1]["$seq"] == 2


def test_many_jobs_are_changed_by_a_filter(client: Client, queue: str, cli: Cli) -> None:
    client.append(queue, [NewRecord(n, tag=f"t{n % 2}") for n in range(6)])
    dry = cli("jobs", "change", queue, "--hold", "--tag", "t1", "--dry-run")
    assert (dry.status, dry.err) == (0, f"3 jobs of {queue} would be held\n")
    held = cli("jobs", "change", queue, "--hold", "--tag", "t1")
    assert held.err.startswith(f"held 3 jobs of {queue}\nundo: logqueue jobs change {queue}")
    undo = held.err.splitlines()[1].split()[2:]
    released = cli(*undo, "--json").json
    assert (released["action"], released["changed"], released["state"]) == ("release", 3, "done")
    cli("jobs", "change", queue, "--delay", "1h", "--seq", "1", "--seq", "2")
    delayed = cli("jobs", queue, "--state", "delayed", "--json").lines
    assert [job["$seq"] for job in delayed] == [1, 2]
    assert cli("jobs", "change", queue, "--retry", "--state", "delayed").status == 0
    refused = cli("jobs", "change", queue, "--cancel")
    assert refused.status == 2 and "--yes" in refused.err
    gone = cli("jobs", "change", queue, "--cancel", "--limit", "4", "--yes")
    assert gone.err == f"cancelled 4 jobs of {queue}\n"
    assert client.topic(queue).count == 2
    wrong = cli("jobs", "change", queue, "--release", "--state", "ready")
    assert wrong.status == 1 and "held" in wrong.err


def test_operations_are_listed_shown_and_stopped(client: Client, queue: str, cli: Cli) -> None:
    client.append(queue, [*range(50)])
    started = cli("jobs", "change", queue, "--hold", "--rate", "1", "--no-wait")
    identity = started.out.strip()
    assert identity.startswith("op_")
    assert identity in [one["id"] for one in cli("operations", "--json").lines]
    stopped = cli("operations", identity, "--stop", "--json").json
    assert stopped["state"] == "cancelled" and stopped["changed"] < 50
    assert "cancelled" in cli("operations", identity).out
    assert cli("operations", "op_none").status == 3
    assert cli("operations", "--stop").status == 2


def test_a_queue_may_be_named_as_the_command(client: Client, cli: Cli) -> None:
    client.ensure_topic("change", type="queue")
    client.append("change", [1])
    assert len(cli("jobs", "change", "--json").lines) == 1
    assert cli("jobs", "change", "change", "--hold", "--dry-run").status == 0
    client.drop_topic("change")


def test_groups_are_listed(client: Client, cli: Cli) -> None:
    client.put_topic("tenants", type="queue", groups={"mode": "fair", "max_in_flight_per_group": 1})
    assert cli("groups", "tenants").status == 3
    client.append("tenants", [NewRecord(n, group="acme" if n else "tiny") for n in range(4)])
    client.claim("tenants", max=2)
    acme, tiny = cli("groups", "tenants", "--json").lines
    assert (acme["group"], acme["waiting"], acme["blocked"]) == ("acme", 2, True)
    assert (tiny["waiting"], tiny["in_flight"]) == (0, 1)
    assert "acme" in cli("groups", "tenants", "--order", "age", "--limit", "1").out


def test_workers_of_all_queues(client: Client, queue: str, cli: Cli) -> None:
    client.append(queue, [1, 2, 3], config={"type": "queue"})
    node = f"{queue}-node"
    client.claim(queue, max=2, node=node)
    shown = cli("workers", "--node", node, "--jobs", "5")
    assert shown.status == 0
    assert shown.out.splitlines()[1].split()[:4] == [node, "working", "2", "2"]
    assert [line.split()[:3] for line in shown.out.splitlines()[-2:]] == [
        [node, queue, "1"],
        [node, queue, "2"],
    ]
    (worker,) = cli("workers", queue, "--jobs", "1", "--json").lines
    assert (worker["node"], len(worker["jobs"])) == (node, 1)
    assert any(node in line for line in cli("workers").out.splitlines())
    assert cli("workers", "--node", "other-node").status == 3
