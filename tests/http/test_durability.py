"""What survives restarts, kills and a full disk, seen from outside."""

from __future__ import annotations

import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest

from tests.http.api import Api, numbered, seqs_of
from tests.http.conftest import ApiFor, FreshServer
from tests.http.expect import Json, eventually, ok, plain_ok, refused
from tests.http.process import ServerProcess, run_to_end
from tests.http.test_topics import DEFAULTS

CLASSES = ["ephemeral", "memory", "disk", "fsync"]
ENDINGS = ["terminate", "kill"]


def end(server: ServerProcess, how: str) -> None:
    """Stop politely, with status 0, or kill."""
    if how == "kill":
        server.kill()
    else:
        assert server.terminate() == 0, server.log()


@pytest.mark.parametrize("how", ENDINGS)
def test_topics_and_config_survive(fresh_server: FreshServer, api_for: ApiFor, how: str) -> None:
    """Control operations are synced before their 2xx, whatever the class."""
    server = fresh_server()
    api = api_for(server)
    config: Json = {"ttl_ms": 9_000_000, "cap_records": 50, "priority": -7, "lease_ms": 4321}
    for durability in CLASSES:
        ok(api.put(durability, type="queue", durability=durability), 201)
        ok(api.put(durability, type="queue", durability=durability, **config))
    ok(api.put("gone"), 201)
    ok(api.delete_topic("gone"))
    ok(api.write("lazy", numbered(1)), 201)
    end(server, how)
    again = api_for(server.restart())
    names = [entry["topic"] for entry in ok(again.topics())["topics"]]
    assert names == sorted([*CLASSES, "lazy"])
    for durability in CLASSES:
        state = ok(again.state(durability))
        assert state["type"] == "queue"
        found = {name: state["config"][name] for name in config}
        assert (state["config"]["durability"], found) == (durability, config)
    lazy = ok(again.state("lazy"))["config"]
    assert {name: lazy[name] for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    ("durability", "how", "kept"),
    [
        ("fsync", "kill", True),  # case 146
        ("fsync", "terminate", True),
        ("disk", "kill", True),
        ("disk", "terminate", True),
        ("memory", "terminate", True),
        ("ephemeral", "terminate", False),
        ("ephemeral", "kill", False),
    ],
)
def test_records_by_class(
    fresh_server: FreshServer, api_for: ApiFor, durability: str, how: str, kept: bool
) -> None:
    """Case 146: what each class keeps; data, tags, meta and times as they were."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", durability=durability)
    records = [{"data": {"n": n}, "tag": f"t{n}", "meta": {"m": n}} for n in range(20)]
    api.append_many("q", records)
    api.append_many("q", numbered(10))
    jobs = api.claimed("q", max=3)
    ok(api.ack("q", seqs_of(jobs)))
    facts = api.facts("q", "head_seq", "count", "bytes", "earliest_seq")
    before = api.read("q", include_tags=True)
    end(server, how)
    again = api_for(server.restart())
    if not kept:
        assert again.facts("q", "count", "ready", "bytes") == (0, 0, 0)
        assert again.read("q", from_seq=again.facts("q", "head_seq")[0]) == []
        if how == "terminate":
            assert again.facts("q", "head_seq") == (30,)
        return
    head, *rest = again.facts("q", "head_seq", "count", "bytes", "earliest_seq")
    assert rest == list(facts[1:])
    assert head >= facts[0]
    assert again.read("q", include_tags=True) == before
    first = again.append("q", "next")[0]
    assert first == head + 1
    if durability == "fsync":
        assert first == 31


@pytest.mark.parametrize("durability", ["disk", "fsync"])
def test_seqs_never_go_back(fresh_server: FreshServer, api_for: ApiFor, durability: str) -> None:
    """Case 147: after every kill the head is at least what was acked, and seqs are new."""
    server = fresh_server()
    last = 0
    for round_ in range(3):
        api = api_for(server)
        if round_ == 0:
            api.make_log("l", durability=durability)
        for _ in range(5):
            seqs = api.append("l", *range(10))
            assert seqs[0] > last
            last = seqs[-1]
        server.kill()
        server.restart()
        assert api_for(server).facts("l", "head_seq")[0] >= last


def test_acked_jobs_stay_gone(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """An acked fsync job is never handed out again; one that was only leased is."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", durability="fsync")
    ok(api.write("q", numbered(100)))
    jobs = api.claimed("q", max=60)
    ok(api.ack("q", seqs_of(jobs)[:50]))
    server.kill()
    again = api_for(server.restart())
    assert again.facts("q", "ready", "in_flight", "count") == (50, 0, 50)
    jobs = again.claimed("q", max=1000)
    assert seqs_of(jobs) == list(range(51, 101))
    assert {job["deliveries"] for job in jobs[10:]} == {1}
    assert {job["deliveries"] for job in jobs[:10]} <= {1, 2}, "a kill may lose the last 100 ms"


def test_a_kill_under_load(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 146: every answered batch is there, every batch is there whole or not at all."""
    server = fresh_server()
    api_for(server).make_log("l", durability="fsync")
    size = 7

    def write(worker: int) -> list[str]:
        answered = []
        with Api(server.base_url) as client:
            for number in range(1000):
                name = f"{worker}-{number}"
                try:
                    ok(client.write("l", [{"data": [name, part]} for part in range(size)]))
                except httpx.TransportError:
                    break
                answered.append(name)
        return answered

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, worker) for worker in range(4)]
        assert eventually(lambda: api_for(server).facts("l", "head_seq")[0] > 200)
        server.kill()
        answered = {name for writer in writers for name in writer.result()}
    again = api_for(server.restart())
    found: dict[str, list[int]] = {}
    cursor = 0
    while records := again.read("l", from_seq=cursor, limit=1000):
        cursor = records[-1]["$seq"]
        for record in records:
            name, part = record["data"]
            found.setdefault(name, []).append(part)
    assert all(parts == list(range(size)) for parts in found.values())
    assert answered <= set(found)
    assert len(found) - len(answered) <= 4


def lease_events_written() -> None:
    """Without `leases_durable` the server hands lease events to the system every 100 ms."""
    time.sleep(1.0)


@pytest.mark.parametrize("how", ENDINGS)
def test_leases_end(fresh_server: FreshServer, api_for: ApiFor, how: str) -> None:
    """Case 138: by default leases end with the server and old tokens are void; the rest of what
    the leases log tells comes back: counts, and the delay of a nack."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", durability="fsync", lease_ms=86_400_000)
    ok(api.write("q", numbered(5)))
    old = api.claimed("q", max=4)
    ok(api.nack("q", [2]))
    ok(api.nack("q", [3], delay_ms=86_400_000))
    lease_events_written()
    end(server, how)
    again = api_for(server.restart())
    assert again.facts("q", "ready", "in_flight", "delayed") == (4, 0, 1)
    assert ok(again.ack("q", [1], lease_ids=[old[0]["lease_id"]]))["skipped"] == [1]
    jobs = again.claimed("q", max=10)
    found = [(job["$seq"], job["deliveries"]) for job in jobs]
    assert found == [(1, 2), (2, 2), (4, 2), (5, 1)]
    assert not {job["lease_id"] for job in jobs} & {job["lease_id"] for job in old}
    assert ok(again.ack("q", [1], lease_ids=[old[0]["lease_id"]]))["skipped"] == [1]


def test_durable_leases_survive(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 137: same holder, token, deadline and counter; the expired one is claimable."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", durability="fsync", leases_durable=True)
    ok(api.write("q", numbered(6)))
    jobs = api.claimed("q", max=3, lease_ms=3_600_000)
    api.claimed("q", max=1)
    ok(api.nack("q", [4], delay_ms=86_400_000))
    short = api.claimed("q", max=1, lease_ms=100)  # no claim after it: it may have expired
    ok(api.nack("q", [3]))
    ok(api.extend("q", [2], lease_ms=7_200_000))
    server.terminate()
    again = api_for(server.restart())
    assert eventually(lambda: again.facts("q", "ready", "in_flight", "count") == (3, 2, 6))
    tokens = [job["lease_id"] for job in jobs]
    assert ok(again.ack("q", [1, 3], lease_ids=[tokens[0], tokens[2]]))["skipped"] == [3]
    assert ok(again.ack("q", [2], "other", lease_ids=[tokens[1]]))["skipped"] == [2]
    fresh = again.claimed("q", "v", max=10)
    assert [(job["$seq"], job["deliveries"]) for job in fresh] == [(3, 2), (5, 2), (6, 1)]
    ids = {job["lease_id"] for job in [*jobs, *short]}
    assert not ids & {job["lease_id"] for job in fresh}
    assert ok(again.ack("q", [2], lease_ids=[tokens[1]]))["acked"] == 1


@pytest.mark.parametrize("how", ENDINGS)
def test_keys_survive(fresh_server: FreshServer, api_for: ApiFor, how: str) -> None:
    """Case 59: a retry after a restart gets the first answer; delete forgets the key."""
    server = fresh_server()
    api = api_for(server)
    api.make_log("disk", durability="disk")
    api.make_log("fsync", durability="fsync")
    first = {}
    for name in ("disk", "fsync"):
        ok(api.write(name, numbered(1)))
        first[name] = ok(api.write(name, numbered(3), idempotency_key="k"))
    ok(api.write("gone", numbered(1), idempotency_key="k"), 201)
    ok(api.delete_topic("gone"))
    end(server, how)
    again = api_for(server.restart())
    for name in ("disk", "fsync"):
        body = ok(again.write(name, numbered(3), idempotency_key="k"))
        assert (body["deduped"], body["seqs"], body["head_seq"]) == (True, [2, 3, 4], 4)
        assert again.facts(name, "count") == (4,)
    body = ok(again.write("gone", numbered(1), idempotency_key="k"), 201)
    assert (body["deduped"], body["seqs"]) == (False, [1])


def test_dead_letters_survive(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """The move is one step: after a kill the job is in the target and nowhere else."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", durability="fsync", max_deliveries=1, dead_letter="dlq")
    api.make_queue("dlq", durability="fsync")
    api.append("q", "bad")
    api.claimed("q")
    ok(api.nack("q", [1]))
    assert api.claimed("q") == []
    server.kill()
    again = api_for(server.restart())
    assert again.facts("q", "count", "dead_lettered") == (0, 1)
    [copy] = again.claimed("dlq", max=5)
    assert (copy["data"], copy["meta"]["$dead_letter_from"]) == ("bad", "q")


def test_many_small_segments(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Rolling and dropping segments changes nothing that can be seen, and gives space back."""
    server = fresh_server(SEGMENT_MAX_BYTES="1000000")
    api = api_for(server)
    api.make_queue("q", durability="fsync")
    api.make_log("kept", durability="fsync")
    for number in range(20):
        api.append("kept", number)
        api.append("q", *["x" * 25_000] * 40)
        assert seqs_of(api.claimed("q", "holder")) == [number * 40 + 1]
        ok(api.ack("q", seqs_of(api.claimed("q", max=39))))
    left = list(range(1, 800, 40))
    assert [job["$seq"] for job in api.read("q", limit=1000)] == left
    server.kill()
    again = api_for(server.restart())
    assert [job["$seq"] for job in again.read("q", limit=1000)] == left
    assert [record["data"] for record in again.read("kept")] == list(range(20))

    def used() -> int:
        return sum(path.stat().st_size for path in server.data_dir.rglob("*") if path.is_file())

    assert eventually(lambda: used() < 12_000_000)
    server.kill()
    last = api_for(server.restart())
    assert [job["$seq"] for job in last.read("q", limit=1000)] == left


def test_restarts_without_work_change_nothing(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Recovery may be repeated any number of times with the same result."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", durability="fsync")
    ok(api.write("q", numbered(10)))
    ok(api.ack("q", seqs_of(api.claimed("q", max=4))))
    ok(api.write("q", numbered(3), idempotency_key="k"))
    names = ("head_seq", "count", "bytes", "earliest_seq", "ready", "last_write_ts")
    facts, records = api.facts("q", *names), api.read("q")
    for how in ("kill", "terminate", "kill"):
        end(server, how)
        again = api_for(server.restart())
        assert (again.facts("q", *names), again.read("q")) == (facts, records)


def test_one_server_per_directory(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 150: the second ends with an error that names the directory, the first goes on."""
    server = fresh_server()
    api = api_for(server)
    api.make_log("l", durability="fsync")
    flags = ["--port", "0", "--data-dir", str(server.data_dir)]
    status, output = run_to_end(flags, {})
    assert status != 0
    assert str(server.data_dir) in output
    assert "Traceback" not in output
    assert api.append("l", 1) == [1]
    server.kill()
    assert api_for(server.restart()).facts("l", "head_seq") == (1,)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_polite_end(fresh_server: FreshServer, api_for: ApiFor, number: signal.Signals) -> None:
    """Exit status 0, soon, although idle connections are open; the lock is released."""
    server = fresh_server()
    api = api_for(server)
    api.make_log("l")
    api.append("l", 1)
    started = time.monotonic()
    assert server.terminate(number) == 0
    assert time.monotonic() - started < 9.5, "requests in progress may take 10 s, idle ones none"
    assert api_for(server.restart()).facts("l", "count") == (1,)


def test_a_request_in_progress_is_answered(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Drain: a claim that waits for its window is served or refused, never cut off."""
    server = fresh_server()
    api = api_for(server)
    api.make_queue("q", claim_jitter_ms=1000, durability="fsync")
    api.append("q", 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(api.claim, "q")
        eventually(waiting.running)
        api_for(server).facts("q", "ready")  # the claim came first
        assert server.terminate() == 0
        reply = waiting.result()
    if reply.status_code == 200:
        ok(reply)
    else:
        refused(reply, 503, "shutting_down")


def limit_file_size(server: ServerProcess, limit: int | None) -> None:
    """Let no file of the server grow beyond this size, or lift the limit again."""
    _, most = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    soft = most if limit is None else limit
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (soft, most))


def largest_file(server: ServerProcess) -> int:
    """Size of the largest file in the data directory."""
    return max(path.stat().st_size for path in server.data_dir.rglob("*") if path.is_file())


def names_in(api: Api, topic: str) -> list[str]:
    """The first ten characters of every record."""
    found: list[str] = []
    body: Json = {"next_from_seq": 0, "caught_up": False}
    while not body["caught_up"]:
        body = ok(api.diff(topic, from_seq=body["next_from_seq"], max_batch_bytes=8_000_000))
        found += [record["data"][:10] for record in body["records"]]
    return found


def test_a_full_disk(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 149: writes 500 while there is no room, work afterwards, and leave no trace."""
    server = fresh_server()
    api = api_for(server)
    api.make_log("l", durability="fsync")
    kept = []

    def write(name: str) -> httpx.Response:
        reply = api.write("l", [{"data": f"{name:10}" + "x" * 1_000_000}])
        if reply.status_code == 200:
            kept.append(f"{name:10}")
        return reply

    for number in range(3):
        ok(write(f"early{number}"))
    limit_file_size(server, largest_file(server))
    for number in range(200):
        if write(f"filling{number}").status_code != 200:
            break
    for number in range(3):
        refused(write(f"lost{number}"), 500, "internal")
    assert names_in(api, "l") == kept
    assert api.facts("l", "count") == (len(kept),)
    plain_ok(api.send("GET", "/v0/health"))
    limit_file_size(server, None)
    assert eventually(lambda: write("late").status_code == 200)
    assert names_in(api, "l") == kept
    server.kill()
    again = api_for(server.restart())
    assert names_in(again, "l") == kept
    assert again.append("l", "next") == [len(kept) + 1]


def has_only_early(api: Api, topic: str) -> bool:
    """Whether a topic holds what was there before the failure, and nothing else."""
    return names_in(api, topic) == ["early"] * 3


def test_a_broken_disk(fresh_server: FreshServer, api_for: ApiFor) -> None:
    """Case 148 by failing writes: 500 for what must be stored; what was stored can be read."""
    server = fresh_server()
    api = api_for(server)
    for durability in ("memory", "disk", "fsync"):
        api.make_queue(durability, durability=durability)
        api.append(durability, *["early"] * 3)
    api.make_queue("ephemeral", durability="ephemeral")
    limit_file_size(server, 1)
    for durability in ("fsync", "disk", "memory"):
        for _ in range(3):
            refused(api.write(durability, [{"data": "lost"}]), 500, "internal")
    refused(api.put("new"), 500, "internal")
    for durability in ("memory", "disk", "fsync"):
        assert eventually(partial(has_only_early, api, durability))
        assert api.facts(durability, "count", "ready") == (3, 3)
    refused(api.state("new"), 404, "topic_not_found")
    metrics = plain_ok(api.send("GET", "/v0/metrics", None, {"accept": "application/json"}))
    if metrics["wal"]["read_only"]:
        poisoned = {"reason": "storage_read_only"}
        refused(api.send("GET", "/v0/ready"), 500, "internal", poisoned)
        refused(api.write("fsync", numbered(1)), 500, "internal", poisoned)
    assert api.append("ephemeral", 1) == [1]
    assert len(api.claimed("ephemeral")) == 1
    plain_ok(api.send("GET", "/v0/health"))
    server.kill()
    again = api_for(server.restart())
    for durability in ("disk", "fsync"):
        assert names_in(again, durability)[:3] == ["early"] * 3
        assert again.append(durability, "late")[0] > 3
