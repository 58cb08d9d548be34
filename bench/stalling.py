"""One trigger after the other against one server, and how long everybody else waits for it.

Owns: the server with a heartbeat, the health probe from outside, and the rows. Must not know: what
the triggers do.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import msgspec

from bench.beating import Beats
from bench.load import LoadFailed, LoneConnection, request
from bench.rows import Row, Target
from bench.session import Session
from logqueue.demo.server import DemoServer, ServerFailed

LONGEST_MAX_MS = 50.0
P999_MAX_MS = 10.0
PROBE_PAUSE_S = 0.002
POLL_S = 0.02
GIVE_UP_S = 180.0
PER_REQUEST = 1000
PAD = "x" * 60


class BeatingServer(DemoServer):
    """A server whose loop beats."""

    def __init__(self, data_dir: Path, side_dir: Path, options: tuple[str, ...]) -> None:
        super().__init__(data_dir, side_dir)
        self.beats_path = side_dir / "beats"
        self._options = options

    def _command(self) -> list[str]:
        python, _, _, *serve = super()._command()
        return [python, "-m", "bench.beating", str(self.beats_path), *serve, *self._options]


class Probe(threading.Thread):
    """Asks for the server's health without a break."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._connection = LoneConnection(address)
        self._stopped = False
        self.longest_s = 0.0

    def run(self) -> None:
        """Until stopped."""
        ask = request("GET", "/v0/health")
        while not self._stopped:
            took_s, _ = self._connection.call(ask)
            self.longest_s = max(self.longest_s, took_s)
            sleep(PROBE_PAUSE_S)

    def stop(self) -> None:
        """Ask no more."""
        self._stopped = True
        self.join()
        self._connection.close()


class Stage:
    """What a trigger acts on: a server of its own, and its size.

    Attributes:
        n: How many jobs "a million" is in this run.
        address: Of the server.
    """

    def __init__(self, server: DemoServer, n: int) -> None:
        self.n = n
        self.address = server.address
        self._connection = LoneConnection(server.address)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One call; the decoded reply. Bodies that are bytes go as they are."""
        content = b"" if body is None else body
        if not isinstance(content, bytes):
            content = msgspec.json.encode(content)
        reply = self._connection.call(request(method, "/v0/" + path, content))[1]
        return msgspec.json.decode(reply) if reply[:1] == b"{" else reply

    def queue(self, name: str, **config: Any) -> None:
        """Make a queue of a class that waits for no sync."""
        self.call("PUT", f"topics/{name}", {"type": "queue", "durability": "disk", **config})

    def fill(self, name: str, count: int, per_request: int = PER_REQUEST, **fields: str) -> None:
        """Append jobs. Values of fields are JSON texts in which %d is the job's number."""
        extra = "".join(f',"{field}":{text}' for field, text in fields.items())
        for start in range(0, count, per_request):
            some = range(start, min(start + per_request, count))
            records = ",".join(
                f'{{"data":{{"n":{n},"pad":"{PAD}"}}{extra.replace("%d", str(n))}}}' for n in some
            )
            path = f"topics/{name}?return_seqs=false"
            self.call("POST", path, f'{{"records":[{records}]}}'.encode())

    def claim_all(self, name: str, count: int, until: float | None = None) -> None:
        """Claim jobs, a thousand at a time; their leases all end at one time of `perf_counter`."""
        for _ in range(0, count, PER_REQUEST):
            left_ms = 3_600_000 if until is None else max(int((until - perf_counter()) * 1000), 100)
            body = {"node": "w", "max": PER_REQUEST, "lease_ms": left_ms}
            self.call("POST", f"topics/{name}/claim", body)

    def wait_for(self, name: str, member: str, value: int) -> None:
        """Wait until a counter of a queue, or of a topic, says so."""
        began = perf_counter()
        while True:
            state = self.call("GET", f"topics/{name}?touch=false")
            found = state[member] if member in state else state["queue"][member]
            if found == value:
                return
            if perf_counter() - began > GIVE_UP_S:
                raise LoadFailed(f"{name}: {member} is {found}, not {value}")
            sleep(POLL_S)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


Trigger = Callable[[Stage], Callable[[], object]]
"""Prepares, and returns what is to be measured."""


def measure(
    session: Session, name: str, what: str, trigger: Trigger, options: tuple[str, ...] = ()
) -> list[Row]:
    """The longest gap and the 99.9th percentile of the gaps while a trigger acts."""
    rows = [
        Row(f"stall-{name}", f"{what}: longest gap", "ms", Target(LONGEST_MAX_MS, at_most=True)),
        Row(f"stall-{name}-p999", f"{what}: p99.9", "ms", Target(P999_MAX_MS, at_most=True)),
    ]
    try:
        with _server(session, options) as server:
            stage = Stage(server, session.scale.stall_jobs)
            act = trigger(stage)
            sleep(session.scale.settle_s)
            beats, probe = Beats(server.beats_path), Probe(server.address)
            probe.start()
            began = perf_counter()
            act()
            took_s = perf_counter() - began
            sleep(0.05)
            probe.stop()
            seen = beats.since(began)
            beats.close()
            stage.close()
    except (LoadFailed, ServerFailed, OSError) as failure:
        for row in rows:
            row.failure = str(failure) or repr(failure)
        return rows
    late = sorted(beat.late_s for beat in seen) or [0.0]
    cpu = max((beat.cpu_s for beat in seen), default=0.0)
    p999 = late[min(int(len(late) * 0.999), len(late) - 1)]
    rows[0].values.append(late[-1] * 1000)
    rows[1].values.append(p999 * 1000)
    note = (
        f"of it {cpu * 1000:.1f} ms at work; health probe {probe.longest_s * 1000:.1f} ms; "
        f"{took_s:.2f} s in all"
    )
    rows[0].notes.append(note)
    session.tell(f"  {name}: {late[-1] * 1000:.1f} ms, p99.9 {p999 * 1000:.1f} ms ({note})")
    return rows


@contextmanager
def _server(session: Session, options: tuple[str, ...]) -> Any:
    side = session.place()
    server = BeatingServer(side / "data", side, options)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(side)
