"""What one request, or one moment, may ask of the server when it holds a million jobs.

Owns: the triggers, and their sizes as shares of `Stage.n`. Must not know: how a stall is measured.
Each prepares a server and returns what is then measured.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from time import perf_counter, sleep, time
from typing import Any

from bench.load import LoadFailed, request
from bench.rows import Row
from bench.session import Session
from bench.stalling import Stage, Trigger, measure

Act = Callable[[], object]
Q = "stalls"
LARGE = '"' + "x" * 1_000_000 + '"'
AHEAD_S = 2.0
CLAIMED_PER_S = 60_000
"""A slow guess at how many jobs the server leases in a second."""


def _keyed(stage: Stage) -> Act:
    count = min(stage.n, 10_000)
    stage.queue(Q)
    stage.fill(Q, count, count, key='"k%d"')
    return lambda: stage.fill(Q, count, count, key='"k%d"')


def _large(stage: Stage) -> int:
    stage.queue(Q)
    count = max(min(stage.n // 2500, 400), 5)
    for _ in range(count):
        stage.call("POST", f"topics/{Q}", f'{{"records":[{{"data":{LARGE}}}]}}'.encode())
    return count


def _claim_large(stage: Stage) -> Act:
    wanted = _large(stage)

    def act() -> None:
        left = wanted
        while left:
            left -= stage.call("POST", f"topics/{Q}/claim", {"node": "w", "max": 1000})["count"]

    return act


def _list_large(stage: Stage) -> Act:
    _large(stage)
    return lambda: stage.call("GET", f"topics/{Q}/jobs?limit=1000")


def _routers(stage: Stage) -> Act:
    count = 60
    stage.call("PUT", "topics/source", {"type": "log", "durability": "disk"})
    for n in range(count):
        stage.call("PUT", f"routers/r{n}", {"source": "source", "dest": f"d{n}"})
    written = min(stage.n, 10_000)

    def act() -> None:
        stage.fill("source", written, written, tag='"t%d"')
        for n in range(count):
            stage.wait_for(f"d{n}", "count", written)

    return act


def _some(stage: Stage) -> int:
    return max(stage.n // 5, 1000)


def _tightened(stage: Stage, bound: dict[str, int], left: int) -> Act:
    """Jobs beyond a new bound are archived, all at once."""
    stage.queue(Q, archive="done")
    stage.fill(Q, _some(stage))

    def act() -> None:
        stage.call("PATCH", f"topics/{Q}", bound)
        stage.wait_for(Q, "count", left)

    return act


def _ttl_archived(stage: Stage) -> Act:
    return _tightened(stage, {"ttl_ms": 1}, 0)


def _cap_archived(stage: Stage) -> Act:
    return _tightened(stage, {"cap_records": 1}, 1)


def _delete_archived(stage: Stage) -> Act:
    stage.queue(Q, archive="done")
    stage.fill(Q, _some(stage))
    return lambda: stage.call("POST", f"topics/{Q}/delete", {"before_seq": 1 << 60})


def _leased(stage: Stage, count: int, **config: Any) -> float:
    """Lease jobs that all run out at the time returned."""
    stage.queue(Q, **config)
    stage.fill(Q, count)
    until = perf_counter() + AHEAD_S + count / CLAIMED_PER_S
    stage.claim_all(Q, count, until)
    return until


def _expire(stage: Stage) -> Act:
    _leased(stage, stage.n)
    return lambda: stage.wait_for(Q, "in_flight", 0)


def _expire_backoff(stage: Stage) -> Act:
    _leased(stage, stage.n, retry_backoff={"kind": "exponential", "base_ms": 3_600_000})
    return lambda: stage.wait_for(Q, "in_flight", 0)


def _delete_any_tag(stage: Stage) -> Act:
    stage.queue(Q)
    stage.fill(Q, stage.n, tag='"t%d"')
    return lambda: stage.call("POST", f"topics/{Q}/delete", {"match": "*"})


def _delete_tag(stage: Stage) -> Act:
    stage.queue(Q)
    for tag in ('"a"', '"b"'):
        stage.fill(Q, stage.n // 2, tag=tag)
    return lambda: stage.call("POST", f"topics/{Q}/delete", {"match": "a"})


def _delete_all(stage: Stage) -> Act:
    stage.queue(Q)
    stage.fill(Q, stage.n)
    return lambda: stage.call("POST", f"topics/{Q}/delete", {"before_seq": 1 << 60})


def _redrive(stage: Stage) -> Act:
    stage.queue(Q, dead_letter="dead")
    count = max(stage.n * 3 // 10, 1000) // 1000 * 1000
    stage.fill(Q, count)
    stage.claim_all(Q, count)
    for first in range(1, count + 1, 1000):
        body = {"node": "w", "seqs": [*range(first, first + 1000)]}
        stage.call("POST", f"topics/{Q}/reject", body)

    def act() -> None:
        stage.call("POST", "topics/dead/redrive", {"reason": "rejected", "limit": 1})
        stage.call("POST", "topics/dead/redrive", {"reason": "rejected", "limit": 10_000})

    return act


def _delayed(stage: Stage) -> Act:
    stage.queue(Q)
    count = max(stage.n * 4 // 10, 1000)
    due = time() + AHEAD_S + count / CLAIMED_PER_S
    stage.fill(Q, count, not_before=str(int(due * 1000)))
    return lambda: stage.wait_for(Q, "delayed", 0)


def _waiting_claims(stage: Stage) -> Act:
    stage.queue(Q)
    count = max(min(stage.n // 250, 4000), 10)
    body = b'{"node":"w","wait_ms":30000}'
    host, _, port = stage.address.rpartition(":")

    def act() -> None:
        sockets = []
        for _ in range(count):
            one = socket.create_connection((host, int(port)))
            one.sendall(request("POST", f"/v0/topics/{Q}/claim", body))
            sockets.append(one)
        stage.fill(Q, count, min(count, 1000))
        for one in sockets:
            if b'"count":1,' not in one.recv(4096):
                raise LoadFailed("a waiting claim got no job")
            one.close()

    return act


def _purge(stage: Stage) -> Act:
    stage.queue(Q)
    stage.fill(Q, stage.n)
    stage.claim_all(Q, stage.n // 2)
    states = ["ready", "in_flight"]
    return lambda: stage.call("POST", f"topics/{Q}/purge", {"states": states})


def _drop(stage: Stage) -> Act:
    stage.queue(Q)
    stage.fill(Q, stage.n // 2)
    stage.claim_all(Q, stage.n // 2)
    stage.fill(Q, stage.n // 4, key='"k%d"', tag='"t%d"')
    stage.fill(Q, stage.n // 4, delay_ms="3600000")

    def act() -> None:
        stage.call("DELETE", f"topics/{Q}")
        # What it held is freed bit by bit.
        sleep(3.0)

    return act


def _views(stage: Stage) -> Act:
    stage.queue(Q)
    stage.fill(Q, stage.n)
    stage.claim_all(Q, stage.n // 2)

    def act() -> None:
        for path in (
            f"topics/{Q}/workers", f"topics/{Q}/jobs?state=in_flight&limit=10",
            f"topics/{Q}/jobs?state=held", f"topics/{Q}/jobs?tag=none", f"topics/{Q}",
            "topics", "metrics", f"topics/{Q}/seq_at?ts={int(time() * 1000)}",
        ):  # fmt: skip
            stage.call("GET", path)

    return act


def _leases_kept(stage: Stage) -> Act:
    stage.queue(Q)
    stage.fill(Q, stage.n)
    stage.claim_all(Q, stage.n)
    return lambda: stage.call("PATCH", f"topics/{Q}", {"leases_durable": True})


def _long_ttl(stage: Stage) -> Act:
    stage.queue(Q)
    stage.fill(Q, stage.n)
    stage.claim_all(Q, stage.n // 2)

    def act() -> None:
        stage.call("PATCH", f"topics/{Q}", {"ttl_ms": 1})
        stage.wait_for(Q, "count", 0)

    return act


def _own_ttl(stage: Stage) -> Act:
    stage.queue(Q)
    count = _some(stage)
    stage.fill(Q, count, ttl_ms=str(int((AHEAD_S + count / 20_000) * 1000)), key='"k%d"')
    return lambda: stage.wait_for(Q, "count", 0)


def _epoch(stage: Stage) -> Act:
    chunks = max(stage.n // 500, 4)
    records = [{"data": 1}] * 100
    for number in range(chunks):
        place = {"topic": "sunk", "partition": 0, "attempt": "a", "chunk": number}
        stage.call("POST", "producers/p/epochs/0/stage", {**place, "records": records})
    part = {"partition": 0, "attempt": "a", "chunks": chunks, "rows": chunks * 100}
    return lambda: stage.call("POST", "producers/p/epochs/0/commit", {"parts": [part]})


def _large_body(stage: Stage) -> Act:
    stage.queue(Q)
    count = min(stage.n, 10_000)
    data = '"' + "x" * (40_000_000 // 10_000) + '"'
    body = f'{{"records":[{",".join([f"""{{"data":{data}}}"""] * count)}]}}'.encode()
    return lambda: stage.call("POST", f"topics/{Q}", body)


def _blanks(stage: Stage) -> Act:
    stage.queue(Q)
    size = min(stage.n * 62, 62 << 20)
    body = b'{"records":[' + b" " * size + b'{"data":1}]}'
    return lambda: stage.call("POST", f"topics/{Q}", body)


def _topics(stage: Stage) -> Act:
    count = max(stage.n // 50, 20)
    for n in range(count):
        stage.call("PUT", f"topics/t{n}", {"type": "queue", "durability": "ephemeral"})

    def act() -> None:
        for method, path in (
            ("PUT", "topics/new"), ("GET", "topics?page_size=1000"), ("GET", "topics?prefix=zz"),
            ("GET", "metrics"), ("DELETE", "topics/new"),
        ):  # fmt: skip
            stage.call(method, path, {} if method == "PUT" else None)

    return act


def _quota(stage: Stage) -> Act:
    count = max(stage.n // 10, 20)
    for n in range(count):
        stage.call("PUT", f"topics/t{n}", {"durability": "ephemeral"})

    def act() -> None:
        for _ in range(20):
            stage.fill("t0", 1)

    return act


def _files(stage: Stage) -> Act:
    stage.call("PUT", "topics/churn", {"type": "log", "durability": "fsync"})

    def act() -> None:
        for _ in range(max(stage.n // 50_000, 1)):
            stage.fill("churn", 10_000, 1000)
            stage.call("POST", "topics/churn/delete", {"before_seq": 1 << 60})
        sleep(3.0)

    return act


TRIGGERS: dict[str, tuple[str, Trigger]] = {
    "keyed": ("10 000 keyed jobs, stored as one batch, are replaced", _keyed),
    "claim-large": ("400 jobs of 1 MB are claimed", _claim_large),
    "list-large": ("a page of 400 jobs of 1 MB", _list_large),
    "routers": ("a write of 10 000 with 60 routers", _routers),
    "ttl-archive": ("a fifth of a million expire into an archive", _ttl_archived),
    "cap-archive": ("a fifth of a million go over a cap into an archive", _cap_archived),
    "delete-archive": ("a fifth of a million are deleted into an archive", _delete_archived),
    "ttl-leased": ("a million expire, half of them leased", _long_ttl),
    "ttl-own": ("a fifth of a million, with keys, expire by their own time", _own_ttl),
    "expire": ("a million leases run out", _expire),
    "expire-backoff": ("a million leases run out, with a backoff", _expire_backoff),
    "delete-any-tag": ("delete by * over a million tags", _delete_any_tag),
    "delete-half": ("delete by a tag that half of a million have", _delete_tag),
    "delete-all": ("delete of a million", _delete_all),
    "redrive": ("redrive by reason over 300 000, of one and of 10 000", _redrive),
    "delayed": ("400 000 delayed jobs come due", _delayed),
    "waiting": ("4000 waiting claims connect and are served", _waiting_claims),
    "purge": ("purge of a million, half of them leased", _purge),
    "drop": ("a topic with a million jobs is deleted", _drop),
    "views": ("workers, job pages, state, metrics, seq_at over a million", _views),
    "leases-kept": ("leases_durable is switched on over a million leases", _leases_kept),
    "epoch": ("commit of an epoch of 2000 chunks", _epoch),
    "large-body": ("a write of 10 000 records and 40 MB", _large_body),
    "blanks": ("a body of 62 MiB of blanks", _blanks),
    "topics": ("20 000 topics: create, list, metrics, delete", _topics),
    "quota": ("writes below max_total_bytes with 100 000 topics", _quota),
    "files": ("segments begin and go", _files),
}
OPTIONS = {"quota": ("--max-total-bytes", "1000000000000")}


def stalls(session: Session) -> list[Row]:
    """Every trigger, each against a server of its own."""
    rows: list[Row] = []
    for name in session.shared["stall-triggers"]:
        what, trigger = TRIGGERS[name]
        rows += measure(session, name, what, trigger, OPTIONS.get(name, ()))
    return rows
