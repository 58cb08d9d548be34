"""What a worker promises, on the real server with real processes and real signals.

The same promises under virtual time are in test_acceptance_memory.py. Leases are short, so that
several of them may pass; every wait is for a report of a handler or for the server's word.
"""

from __future__ import annotations

import signal

import pytest

from logqueue.client import Client, NewRecord
from logqueue.shapes import Claimed
from tests.worker.lossy import LossyProxy
from tests.worker.programs import Programs

LEASE_S = 1.0


def call(task: str, *args: object) -> NewRecord:
    """A job that calls a task."""
    return NewRecord({"task": task, "args": [*args], "kwargs": {}})


def put(client: Client, programs: Programs, *jobs: NewRecord) -> None:
    """Make the test's queue and put jobs in."""
    client.append(programs.queue, jobs, config={"type": "queue"})


def until_empty(client: Client, programs: Programs, left: int = 0) -> None:
    """Wait until a queue has no more than so many jobs."""
    queue = programs.queue
    while client.topic(queue).count > left:
        programs.check()
        # The server holds this reply until something is new or the time is up.
        client.diff(queue, client.topic(queue).head_seq, wait_ms=20)


def until_claimable(client: Client, programs: Programs) -> Claimed:
    """Wait until there is a job to claim."""
    queue = programs.queue
    while not (claimed := client.claim(queue, max=10, wait_ms=1000)).jobs:
        programs.check()
        client.diff(queue, client.topic(queue).head_seq, wait_ms=20)
    return claimed


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_1_a_killed_workers_job_is_started_by_another(
    client: Client, programs: Programs, source: str
) -> None:
    put(client, programs, call("sleep", 600))
    first = programs.start(source=source, lease=LEASE_S)
    began = programs.next_news("started")
    assert (began["pid"], began["deliveries"]) == (first.pid, 1)
    second = programs.start(source=source, lease=LEASE_S)
    first.kill()
    again = programs.next_news("started")
    assert (again["pid"], again["deliveries"]) == (second.pid, 2)


@pytest.mark.parametrize("source", ["sse", "poll"])
@pytest.mark.parametrize(
    ("task", "leases"),
    [("sleep", 3), ("block_a_thread", 2), ("block_the_loop", 2), ("hold_the_lock", 2)],
)
def test_2_and_3_a_job_of_several_leases_length_runs_once(
    client: Client, programs: Programs, source: str, task: str, leases: int
) -> None:
    put(client, programs, call(task, leases * LEASE_S))
    programs.start(source=source, lease=LEASE_S)
    programs.start(source=source, lease=LEASE_S)
    programs.next_news("finished")
    until_empty(client, programs)
    assert [news["deliveries"] for news in programs.all_news("started")] == [1]


@pytest.mark.parametrize("source", ["sse", "poll"])
def test_4_a_stop_stores_finished_acks_and_gives_the_long_job_back(
    client: Client, programs: Programs, source: str
) -> None:
    put(client, programs, call("sleep", 60), call("sleep", 0.1), call("sleep", 0.1))
    worker = programs.start(source=source, lease=30.0, grace=0.5)
    for _ in range(3):
        programs.next_news("started")
    for _ in range(2):
        programs.next_news("finished")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.output()
    # Long before the lease would have run out.
    back = until_claimable(client, programs)
    assert [job.data["args"] for job in back.jobs] == [[60]]
    assert client.topic(programs.queue).count == 1


def test_4_a_second_signal_skips_the_grace(client: Client, programs: Programs) -> None:
    put(client, programs, call("sleep", 600))
    worker = programs.start(grace=600.0)
    programs.next_news("started")
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGINT)
    assert worker.wait() == 0, worker.output()
    assert len(until_claimable(client, programs).jobs) == 1


def test_4_a_thread_that_never_returns_does_not_keep_the_process(
    client: Client, programs: Programs
) -> None:
    put(client, programs, call("block_a_thread", 600))
    worker = programs.start(grace=0.1)
    programs.next_news("started")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.output()
    assert len(until_claimable(client, programs).jobs) == 1


def test_4_several_processes_stop_together(client: Client, programs: Programs) -> None:
    put(client, programs, call("sleep", 600), call("sleep", 600))
    worker = programs.start(processes=2, concurrency=1, grace=0.1)
    programs.next_news("started")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.output()


@pytest.mark.parametrize("verb", ["claim", "ack", "append", "work"])
def test_5_a_lost_reply_loses_doubles_and_strands_nothing(
    client: Client, programs: Programs, lossy: LossyProxy, verb: str
) -> None:
    client.put_topic(programs.queue, type="queue")
    lossy.lose_reply(verb)
    with Client(lossy.url) as producer:
        producer.append(programs.queue, [call("note"), call("note")])
    source = "sse" if verb == "work" else "poll"
    programs.start(url=lossy.url, source=source, lease=LEASE_S)
    until_empty(client, programs)
    assert lossy.lost == [verb]
    noted = [news["seq"] for news in programs.all_news("noted")]
    assert sorted(noted) == [1, 2], "both were done, and none twice"


def test_6_one_error_in_a_thousand_jobs_leaves_999_to_finish(
    client: Client, programs: Programs
) -> None:
    put(client, programs, *(call("count", number, 500) for number in range(1000)))
    programs.start(once=True).wait()
    (left,) = client.diff(programs.queue).records
    assert left.data["args"] == [500, 500]
