"""Replies and connections lost on the way to and from the real server: nothing lost or doubled."""

from __future__ import annotations

from contextlib import closing

import pytest

from logqueue.client import Client, Interrupted, LostReply, Unreachable
from logqueue.shapes import Job, Record
from tests.client.either import Naps, Opened
from tests.client.proxy import Proxy
from tests.http.conftest import FreshServer
from tests.http.expect import eventually
from tests.http.process import ServerProcess


def test_a_write_whose_reply_was_lost_is_stored_once(
    client: Client, far_client: Client, proxy: Proxy, naps: Naps, topic: str
) -> None:
    proxy.lose_reply(f"/v0/topics/{topic}")
    reply = far_client.append(topic, ["a", "b"], create=True)
    assert reply.deduped and reply.seqs == [1, 2]
    assert len(proxy.seen) == 2 and len(naps.taken) == 1
    assert [r.data for r in client.read(topic) if isinstance(r, Record)] == ["a", "b"]


def test_every_batch_of_a_long_write_may_lose_its_reply(
    client: Client, far_client: Client, proxy: Proxy, topic: str
) -> None:
    for _ in range(3):
        proxy.lose_reply(f"/v0/topics/{topic}")
    reply = far_client.append(topic, range(50), chunk=10, create=True)
    assert len(proxy.seen) == 8, "five batches and three repeats"
    assert reply.count == 50
    assert [r.data for r in client.read(topic) if isinstance(r, Record)] == [*range(50)]


def test_an_ack_whose_reply_was_lost_counts(
    client: Client, far_client: Client, proxy: Proxy, queue: str
) -> None:
    client.append(queue, [1, 2], create=True)
    jobs = far_client.claim(queue, max=2).jobs
    proxy.lose_reply("/ack")
    settled = far_client.ack(queue, jobs)
    assert (settled.counted, settled.skipped, settled.unsure) == ([], [], [1, 2])
    assert client.topic(queue).count == 0


def test_a_repeated_nack_leaves_the_next_holder_alone(
    server: ServerProcess, far_client: Client, proxy: Proxy, naps: Naps, queue: str
) -> None:
    taken: list[Job] = []
    with Client(server.base_url) as other:
        other.append(queue, [1], create=True)
        jobs = far_client.claim(queue).jobs
        naps.then = lambda: taken.extend(other.claim(queue, lease_ms=60_000).jobs)
        proxy.lose_reply("/nack")
        assert far_client.nack(queue, jobs).unsure == [1]
        assert other.ack(queue, taken).counted == [1]


def test_a_repeated_extend_counts(
    client: Client, far_client: Client, proxy: Proxy, queue: str
) -> None:
    client.append(queue, [1], create=True)
    (job,) = far_client.claim(queue, lease_ms=60_000).jobs
    proxy.lose_reply("/extend")
    assert far_client.extend(queue, job, 120_000).deadlines[1] > job.deadline


def test_a_claim_whose_reply_was_lost_strands_no_job(
    client: Client, far_client: Client, proxy: Proxy, queue: str
) -> None:
    client.append(queue, [1], create=True)
    proxy.lose_reply("/claim")
    with pytest.raises(LostReply):
        far_client.claim(queue, lease_ms=100)
    assert len(proxy.seen) == 1, "a second claim would have leased other jobs"
    (job,) = eventually(lambda: client.claim(queue).jobs)
    assert job.deliveries == 2


def test_a_server_that_comes_back_in_time_is_not_missed(
    far_client: Client, proxy: Proxy, naps: Naps, queue: str
) -> None:
    proxy.refuse()
    proxy.cut()
    naps.then = lambda: proxy.listen() if len(naps.taken) == 3 else None
    assert far_client.append(queue, [1], create=True).count == 1
    assert len(naps.taken) == 3


def test_a_server_that_stays_away_was_told_nothing(
    far_client: Client, proxy: Proxy, queue: str
) -> None:
    proxy.refuse()
    proxy.cut()
    with pytest.raises(Unreachable) as caught:
        far_client.claim(queue)
    assert caught.value.had_no_effect and proxy.seen == []


def test_a_cut_work_stream_gives_its_jobs_back_and_goes_on(
    client: Client, far_client: Client, proxy: Proxy, queue: str
) -> None:
    client.append(queue, [1, 2, 3], create=True)
    with closing(far_client.work(queue, max=2)) as stream:
        first, second = next(stream), next(stream)
        assert isinstance(first, Job) and isinstance(second, Job)
        assert client.ack(queue, first, node=far_client.node).counted == [1]
        assert far_client.ack(queue, first).skipped == [1], "so that the client knows too"
        third = next(stream)
        proxy.cut()
        interrupted = next(stream)
        assert isinstance(interrupted, Interrupted)
        assert {job.seq for job in interrupted.jobs} == {2, 3}
        again = [next(stream), next(stream)]
        assert {job.seq for job in again if isinstance(job, Job)} == {2, 3}
        assert all(isinstance(job, Job) and job.deliveries == 2 for job in again)
        assert far_client.ack(queue, [second, *again]).counted == [2, 3]  # type: ignore[list-item]
        assert isinstance(third, Job)


def test_streams_outlive_a_restart_of_the_server(opened: Opened, fresh_server: FreshServer) -> None:
    server = fresh_server()
    with Proxy(server.address) as proxy:
        client = opened(proxy.url)
        client.put_topic("q", type="queue", durable=True)
        client.append("q", [1], create=True)
        with closing(client.work("q")) as stream:
            first = next(stream)
            assert isinstance(first, Job)
            server.kill()
            server.start()
            proxy.lead_to(server.address)
            interrupted = next(stream)
            assert isinstance(interrupted, Interrupted) and interrupted.jobs == (first,)
            again = next(stream)
            assert isinstance(again, Job) and client.ack("q", again).counted == [1]
