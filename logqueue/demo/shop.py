"""The queues of a shop, busy until they are stopped: something to look at on the dashboard.

Owns: its topics, who appends to them, who works on them, and what goes wrong there. Must not know:
servers and their ends, who looks. Everything is sent with the public client.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

from logqueue import Client, LogqueueError, NewRecord
from logqueue.client.topic_calls import ConfigFields

TICK_S = 0.25
LEASE_MS = 30_000
CLAIM_WAIT_MS = 500
CITIES = ("Berlin", "Lisbon", "Oslo", "Seoul", "Quito", "Kraków")
NAMES = ("ann", "bob", "chen", "dora", "emre", "fatima", "goran", "hana")

EVENTS = "shop.events"
MAIL = "mail"
PAYMENTS = "payments"
THUMBNAILS = "thumbnails"
WEBHOOKS = "webhooks"
REPORTS = "reports.nightly"
IMPORTS = "imports"
SEARCH = "search.index"


class FiringTimes(TypedDict, total=False):
    """When a schedule fires."""

    cron: str
    timezone: str
    every_ms: int


@dataclass(frozen=True)
class Traffic:
    """What happens on one queue.

    Attributes:
        queue: The queue's name.
        config: How it is created.
        make: The data of a job, from a number and a source of chance.
        per_s: Jobs appended, in the long run.
        nodes: Workers, by name; without any, jobs wait.
        take_s: How long a worker has a batch, on average.
        batch: Jobs claimed at once.
        errors: What jobs fail with.
        failing: The share of deliveries that fail and are tried again.
        rejected: The share that fails permanently.
    """

    queue: str
    config: ConfigFields
    make: Callable[[int, random.Random], NewRecord]
    per_s: float = 0.0
    nodes: Sequence[str] = ()
    take_s: float = 0.3
    batch: int = 4
    errors: Sequence[str] = ()
    failing: float = 0.0
    rejected: float = 0.0


def _mail(number: int, chance: random.Random) -> NewRecord:
    name = chance.choice(NAMES)
    kind = chance.choice(("receipt", "receipt", "welcome", "reset"))
    data = {"to": f"{name}@example.com", "template": kind, "order": 10_000 + number}
    return NewRecord(data, tag=f"mail.{kind}", node="shop-web-1")


def _payment(number: int, chance: random.Random) -> NewRecord:
    data = {
        "order": 10_000 + number,
        "amount": {"value": f"{chance.randint(5, 400)}.{chance.randint(0, 99):02}", "unit": "EUR"},
        "card": f"•••• {chance.randint(1000, 9999)}",
    }
    return NewRecord(data, tag="payment.capture", node="shop-web-2", key=f"order-{10_000 + number}")


def _thumbnail(number: int, chance: random.Random) -> NewRecord:
    data = {"image": f"products/{number:05}.jpg", "sizes": [64, 256, 1024]}
    return NewRecord(data, tag=chance.choice(("image.new", "image.changed")), node="catalog")


def _webhook(number: int, chance: random.Random) -> NewRecord:
    shop = chance.choice(("acme", "globex", "initech"))
    data = {"url": f"https://hooks.{shop}.example/orders", "event": "order.paid", "order": number}
    return NewRecord(data, tag=f"hook.{shop}", node="shop-web-1")


def _report(number: int, chance: random.Random) -> NewRecord:
    data = {"report": chance.choice(("sales", "stock", "tax")), "city": chance.choice(CITIES)}
    return NewRecord(data, tag="report", node="cron")


def _import(number: int, chance: random.Random) -> NewRecord:
    data = {"file": f"supplier-{chance.randint(1, 9)}.csv", "lines": chance.randint(100, 90_000)}
    return NewRecord(data, tag="import.csv", node="sftp", max_deliveries=2)


TRAFFIC = (
    Traffic(
        MAIL,
        {"type": "queue", "durability": "fsync", "max_deliveries": 5, "dead_letter": "mail.dead"},
        _mail,
        per_s=14,
        nodes=("mailer-1", "mailer-2"),
        batch=8,
        errors=("SMTP 421: try again later", "SMTP 550: no such mailbox"),
        failing=0.03,
        rejected=0.004,
    ),
    Traffic(
        PAYMENTS,
        {
            "type": "queue",
            "durability": "fsync",
            "max_deliveries": 3,
            "dead_letter": "payments.dead",
        },
        _payment,
        per_s=0.6,
    ),
    Traffic(
        THUMBNAILS,
        {"type": "queue", "max_in_flight": 64, "archive": "thumbnails.done"},
        _thumbnail,
        per_s=22,
        nodes=("thumbs-1", "thumbs-2", "thumbs-3"),
        batch=8,
        take_s=0.9,
    ),
    Traffic(
        WEBHOOKS,
        {
            "type": "queue",
            "max_deliveries": 4,
            "dead_letter": "webhooks.dead",
            "retry_backoff": {
                "kind": "exponential",
                "base_ms": 2000,
                "factor": 3,
                "max_ms": 60_000,
            },
            "claim_rate": {"per_s": 20, "burst": 40},
        },
        _webhook,
        per_s=6,
        nodes=("hooks-1", "hooks-2"),
        errors=(
            "HTTP 503 from https://hooks.globex.example/orders: upstream is down",
            "timeout after 10 s: https://hooks.initech.example/orders",
            "certificate of hooks.acme.example has expired",
        ),
        failing=0.22,
        rejected=0.02,
    ),
    Traffic(REPORTS, {"type": "queue", "paused": True}, _report, per_s=0.1),
    Traffic(
        IMPORTS,
        {"type": "queue", "on_exhausted": "hold", "max_deliveries": 2},
        _import,
        per_s=0.4,
        nodes=("importer-1",),
        batch=1,
        take_s=1.6,
        errors=("line 4711: 'price' is not a number",),
        failing=0.2,
    ),
    Traffic(SEARCH, {"type": "queue"}, _mail, nodes=("search-1",), batch=32, take_s=0.2),
)
"""`payments` has no worker, `reports.nightly` is paused: what an operator must notice."""

BACKLOG: Mapping[str, int] = {PAYMENTS: 37, THUMBNAILS: 900, REPORTS: 48, WEBHOOKS: 60, IMPORTS: 4}
SCHEDULES: Sequence[tuple[str, str, FiringTimes]] = (
    ("nightly-report", REPORTS, {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}),
    ("newsletter", MAIL, {"cron": "30 9 * * mon", "timezone": "America/New_York"}),
    ("exchange-rates", IMPORTS, {"every_ms": 30_000}),
)
"""What is written at times of its own: name, queue, when."""

LOST_NODE = "thumbs-4"
"""Has claimed jobs and is never heard of again."""


class Shop:
    """The traffic of all queues, by threads of this process."""

    def __init__(self, url: str, *, token: str | None = None, seed: int = 7) -> None:
        """Nothing is sent yet.

        Args:
            url: Of the server.
            token: Its key, if it has keys.
            seed: Of whatever is left to chance.
        """
        self._url = url
        self._token = token
        self._seed = seed
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def set_up(self) -> None:
        """Create the topics, with jobs that wait already and some that have failed."""
        chance = random.Random(self._seed)
        with self._client() as client:
            client.ensure_topic(EVENTS)
            for traffic in TRAFFIC:
                config = traffic.config
                for copies in (config.get("dead_letter"), config.get("archive")):
                    if copies:
                        client.ensure_topic(copies)
                client.ensure_topic(traffic.queue, **config)
                backlog = BACKLOG.get(traffic.queue, 0)
                client.append(
                    traffic.queue, [traffic.make(number, chance) for number in range(backlog)]
                )
                if traffic.rejected:
                    _fail_some(client, traffic, chance)
            client.put_router("events-to-search", EVENTS, SEARCH)
            for name, queue, times in SCHEDULES:
                client.put_schedule(name, queue, {"by": name}, **times)

    def start(self) -> None:
        """Begin to append and to work."""
        with self._client(LOST_NODE) as client:
            client.claim(THUMBNAILS, max=5, lease_ms=1_800_000)
        self._run(self._produce)
        for traffic in TRAFFIC:
            for node in traffic.nodes:
                self._run(partial(self._work, traffic, node))

    def stop(self) -> None:
        """End; what is claimed is settled first."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until stopped, or for so long."""
        self._stop.wait(seconds)

    def _client(self, node: str | None = None) -> Client:
        return Client(self._url, token=self._token, node=node)

    def _run(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _produce(self) -> None:
        chance = random.Random(self._seed + 1)
        due = {traffic.queue: 0.0 for traffic in TRAFFIC}
        number = 1000
        with self._client("shop-web-1") as client:
            while not self._stop.wait(TICK_S):
                for traffic in TRAFFIC:
                    # Waves, so that a chart has something to show.
                    wave = 1 + 0.5 * math.sin(time.time() / 12 + len(traffic.queue))
                    wave += chance.uniform(-0.3, 0.3)
                    due[traffic.queue] += traffic.per_s * TICK_S * max(0.0, wave)
                    count = int(due[traffic.queue])
                    due[traffic.queue] -= count
                    number += count
                    jobs = [traffic.make(number + one, chance) for one in range(count)]
                    _append(client, traffic.queue, jobs)
                event = {"visit": chance.choice(CITIES), "page": f"/products/{number % 400}"}
                _append(client, EVENTS, [NewRecord(event, tag="visit"), NewRecord(event)])

    def _work(self, traffic: Traffic, node: str) -> None:
        chance = random.Random(f"{self._seed} {node}")
        with self._client(node) as client:
            while not self._stop.is_set():
                with suppress(LogqueueError):
                    self._work_once(client, traffic, chance)

    def _work_once(self, client: Client, traffic: Traffic, chance: random.Random) -> None:
        claimed = client.claim(
            traffic.queue, max=traffic.batch, lease_ms=LEASE_MS, wait_ms=CLAIM_WAIT_MS
        )
        if not claimed.jobs:
            return
        self._stop.wait(traffic.take_s * chance.uniform(0.4, 1.6))
        done = []
        for job in claimed.jobs:
            fate = chance.random()
            if fate < traffic.rejected:
                client.reject(traffic.queue, job, error=chance.choice(traffic.errors))
            elif fate < traffic.rejected + traffic.failing:
                client.nack(traffic.queue, job, error=chance.choice(traffic.errors))
            else:
                done.append(job)
        client.ack(traffic.queue, done)


def _append(client: Client, topic: str, records: Sequence[Any]) -> None:
    """Append to a queue that may be full, or on a server that may be away for a while."""
    if records:
        with suppress(LogqueueError):
            client.append(topic, records)


def _fail_some(client: Client, traffic: Traffic, chance: random.Random) -> None:
    """Dead letters that were there before."""
    records = [traffic.make(number, chance) for number in range(24)]
    client.append(traffic.queue, records)
    claimed = client.claim(traffic.queue, node=f"{traffic.queue}-old", max=24)
    for job in claimed.jobs:
        place = min(int(chance.expovariate(1.2)), len(traffic.errors) - 1)
        client.reject(traffic.queue, job, node=f"{traffic.queue}-old", error=traffic.errors[place])
