"""A workflow of three steps on a server that is killed: each step has its effect once.

Every step acks its job and writes that of the next in one call. Workers are cut off with the server
and repeat what they do not know the outcome of.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

from logqueue.client import Backoff, Client, FollowUp
from logqueue.errors import LogqueueError
from tests.http.process import ServerProcess

ORDERS = 120
STEPS = ("charge", "ship", "notify", "notified")
KILLS = 3


def test_each_step_of_each_order_happens_once(tmp_path: Path) -> None:
    """Counted in the log that the last step writes to, and in what the queues have ever held."""
    server = ServerProcess(tmp_path / "data").start()
    stop = threading.Event()
    with Client(server.base_url) as client:
        for queue in STEPS[:3]:
            client.put_topic(queue, type="queue", lease_ms=500)
        client.put_topic(STEPS[3], type="log")
        client.append(STEPS[0], [{"order": n} for n in range(ORDERS)])
        progressed = threading.Semaphore(0)
        workers = [
            threading.Thread(target=work, args=(server, step, stop, progressed))
            for step in range(3)
            for _ in range(2)
        ]
        for worker in workers:
            worker.start()
        for _ in range(KILLS):
            for _ in range(ORDERS // 2):
                assert progressed.acquire(timeout=60), "nothing is done"
            server.kill()
            server.start()
    with Client(server.base_url) as client:
        while client.topic(STEPS[3]).count < ORDERS:
            assert progressed.acquire(timeout=60), "nothing is done"
        stop.set()
        for worker in workers:
            worker.join(30)
        written = [item.data["order"] for item in client.read(STEPS[3]) if hasattr(item, "data")]
        assert Counter(written) == dict.fromkeys(range(ORDERS), 1)
        for queue in STEPS[:3]:
            state = client.topic(queue)
            assert state.count == 0
    server.stop()


def work(
    server: ServerProcess,
    step: int,
    stop: threading.Event,
    progressed: threading.Semaphore,
) -> None:
    """Do one step, until all is done."""
    queue, target = STEPS[step], STEPS[step + 1]
    while not stop.is_set():
        with Client(server.base_url, backoff=Backoff(attempts=1)) as client:
            try:
                while not stop.is_set():
                    for job in client.claim(queue, max=2, wait_ms=100).jobs:
                        client.ack(queue, job, append=[FollowUp(target, [job.data])])
                        progressed.release()
            except LogqueueError:
                # What became of it is not known: the lease ends, and the job comes again if it was
                # not acked.
                stop.wait(0.01)
