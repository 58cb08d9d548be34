"""The protocols of other servers, the comparison and its page; real peers in the slow test."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.load import LoadFailed, Read, job
from bench.loops import Tally
from bench.page import write_between
from bench.peers import postgres
from bench.peers.__main__ import PEERS, QUICK
from bench.peers.beanstalk import Beanstalkd, lines, reserved
from bench.peers.following import Follower
from bench.peers.jetstream import _PULLED, _STORED, JetStream, matches
from bench.peers.ours import Logqueue
from bench.peers.peer import Peer, family, installed_version
from bench.peers.redis_streams import RedisStreams, entries, entry_ids, replies, whole_entries
from bench.peers.table import Comparison, for_machine, markdown, picture
from bench.peers.works import WORKS, Measured, Work, measure

ENTRY = b"*2\r\n$3\r\n%d-0\r\n*2\r\n$1\r\nd\r\n$4\r\nwork\r\n"
DELIVERED = b"*1\r\n*2\r\n$1\r\nq\r\n*2\r\n" + ENTRY % 1 + ENTRY % 2
READY = b"Z\0\0\0\x05I"
ROW = postgres.message(b"D", b"\0\x02\0\0\0\x0212\0\0\0\x03job")
DONE = postgres.message(b"C", b"SELECT 1\0")

REPLIES: list[tuple[Read, bytes, Any]] = [
    (entry_ids(2), b"$3\r\n1-0\r\n$3\r\n1-1\r\n", [b"1-0", b"1-1"]),
    (entries(2), DELIVERED, [b"1-0", b"2-0"]),
    (replies(2, b":2"), b":2\r\n:2\r\n", b":2\r\n:2\r\n"),
    (lines(2, b"INSERTED "), b"INSERTED 7\r\nINSERTED 8\r\n", b"INSERTED 7\r\nINSERTED 8\r\n"),
    (reserved(2), b"RESERVED 7 4\r\nwork\r\nRESERVED 8 4\r\nwork\r\n", [b"7", b"8"]),
    (
        matches(_PULLED, 1),
        b"PING\r\nMSG q 1 $JS.ACK.q.w.1 4\r\nwork\r\n",
        [b"$JS.ACK.q.w.1"],
    ),
    (
        matches(_STORED, 1),
        b'MSG _INBOX.0 1 26\r\n{"stream":"q", "seq":1}\r\n',
        [b'MSG _INBOX.0 1 26\r\n{"stream":"q", "seq":1}\r\n'],
    ),
    (
        postgres.read_result,
        ROW + DONE + READY,
        postgres.Result([[b"12", b"job"]], b"SELECT 1"),
    ),
]


@pytest.mark.parametrize(("read", "data", "reply"), REPLIES)
def test_replies_of_peers_are_read_whole_or_not_at_all(read: Read, data: bytes, reply: Any) -> None:
    assert read(data) == (reply, len(data))
    assert [end for end in range(len(data)) if read(data[:end]) is not None] == []


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (entry_ids(1), b"-ERR no\r\n"),
        (entry_ids(2), b"$3\r\n1-0\r\n-OOM no\r\n"),
        (entries(1), b"*-1\r\n"),
        (entries(3), DELIVERED),
        (replies(1, b":1"), b":0\r\n"),
        (lines(2, b"INSERTED "), b"INSERTED 7\r\nDRAINING\r\n"),
        (reserved(1), b"TIMED_OUT\r\n"),
        (matches(_STORED, 1), b"-ERR 'no'\r\n"),
        (matches(_STORED, 1), b'MSG i 1 20\r\n{"error":{"code":503}}\r\n'),
        (postgres.read_result, postgres.message(b"E", b"SERROR\0\0") + READY),
    ],
)
def test_a_refusal_of_a_peer_ends_the_measurement(read: Read, data: bytes) -> None:
    with pytest.raises(LoadFailed):
        read(data)


@pytest.mark.parametrize("kind", [RedisStreams, Beanstalkd, postgres.PostgreSQL, JetStream])
def test_a_cycle_ends_where_a_job_comes_twice(kind: type[Peer], tmp_path: Path) -> None:
    """Scripts are fed by hand: the claim of the second round brings the job of the first."""
    peer: Any = kind(tmp_path)
    peer._inboxes = {None: b"_INBOX.0"}
    given: dict[type[Peer], list[Any]] = {
        RedisStreams: [b"", [b"1-0"], b""],
        Beanstalkd: [b"", [b"1"], b""],
        JetStream: [b"", [b"$JS.ACK.1"], b""],
        postgres.PostgreSQL: [
            postgres.Result([], b"INSERT 0 1"),
            postgres.Result([[b"1", b"job"]], b"UPDATE 1"),
            postgres.Result([], b"DELETE 1"),
        ],
    }
    ahead = {Beanstalkd: 2, postgres.PostgreSQL: 3}
    tally = Tally()
    script = peer.cycle(None, "q", [job(1)], tally, set[bytes]())
    next(script)
    for _ in range(ahead.get(kind, 0)):
        script.send(b"")
    for reply in given[kind]:
        script.send(reply)
    assert tally.units == 1
    script.send(given[kind][0])
    with pytest.raises(LoadFailed, match="twice"):
        script.send(given[kind][1])


def test_arrays_for_postgresql_are_quoted() -> None:
    assert postgres._array([b'{"n":1}', b"a\\b"]) == b'{"{\\"n\\":1}","a\\\\b"}'


def test_entries_are_whole_only_when_all_have_come() -> None:
    assert whole_entries(DELIVERED) == [b"1-0", b"2-0"]
    assert whole_entries(DELIVERED[:-1]) is None and whole_entries(b"") is None


def test_a_follower_sees_each_record_however_it_is_cut() -> None:
    data = b"".join(b"data: " + job(number) + b"\n\n" for number in range(3))
    for cut in range(len(data)):
        numbers: list[int] = []
        follower = Follower(lambda number, now, seen=numbers: seen.append(number))  # type: ignore[misc]
        follower.data_received(data[:cut])
        follower.data_received(data[cut:])
        assert numbers == [0, 1, 2] and follower.failure is None
    follower.data_received(job(5))
    assert "record 5 after 3" in str(follower.failure)


class Installed(Logqueue):
    """A peer with another name."""

    name = "another"

    @classmethod
    def version(cls) -> str:
        """Some."""
        return "1.2"


class Missing(Logqueue):
    """A peer that is not there."""

    name = "missing"
    install = "apt install missing"


def compared() -> tuple[Comparison, Work, Work]:
    """A rate at which we are twice as good, and a delay at which we are half as good."""
    rate = next(work for work in WORKS if work.name == "append-1-c8")
    delay = next(work for work in WORKS if work.name == "watch-1")
    comparison = Comparison([rate, delay], [Logqueue, Installed])
    for values in ((200.0, 100.0), (2.0, 1.0)):
        work = rate if values[0] > 2 else delay
        comparison.add(work, Logqueue, Measured(values[0], 50.0, 0.3))
        comparison.add(work, Installed, Measured(values[1], 25.0, 0.95))
    return comparison, rate, delay


def test_a_ratio_says_how_many_times_as_good_we_are() -> None:
    comparison, rate, delay = compared()
    assert comparison.ratio(rate, Installed) == 2.0
    assert comparison.ratio(delay, Installed) == 0.5
    rows = json.loads(for_machine(comparison, {}))["rows"]
    assert [row["ours_over_theirs"] for row in rows] == [1.0, 2.0, 1.0, 0.5]


def test_the_page_says_what_is_missing_and_what_failed(tmp_path: Path) -> None:
    comparison, rate, _ = compared()
    comparison.failures["cycle-1", "another"] = "out of luck"
    text = markdown(comparison, [Missing], {"processors": 2})
    assert "| append, 1 per request, 8 connections, records/s | 200 | ≥ 100 (× 2) |" in text
    assert "- missing was not installed (`apt install missing`)." in text
    assert "- another, cycle-1: failed: out of luck" in text
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- peers begin -->\nold\n<!-- peers end -->\nafter\n")
    write_between(page, "peers", text)
    write_between(page, "peers", text)
    assert page.read_text().startswith("before\n<!-- peers begin -->\n\nMeasured on:")
    assert page.read_text().endswith("\n\n<!-- peers end -->\nafter\n")
    with pytest.raises(ValueError, match="has no markers growth"):
        write_between(page, "growth", text)
    assert ElementTree.fromstring(picture(comparison)).tag.endswith("svg")
    assert comparison.value(rate, Missing) is None


def test_versions_are_found_and_families_counted() -> None:
    assert installed_version("no-such-program") == "" == installed_version(None)
    assert installed_version("sh", "-c", "echo Some server v=7.0.15 sha=0") == "7.0.15"
    assert installed_version("sh", "-c", "echo 'some (Server) 15.2'") == "15.2"
    assert family(1)[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_an_installed_peer_does_every_work(name: str) -> None:
    kind = PEERS[name]
    if not kind.version():
        pytest.skip(f"not installed: {kind.install}")
    # Not below the folders of pytest, which another user must not enter: PostgreSQL shuns root.
    with TemporaryDirectory() as folder:
        peer = kind(Path(folder))
        try:
            peer.start()
            for number, work in enumerate(WORKS):
                if not (work.follows and kind.lacks):
                    assert measure(peer, work, f"bench{number}", QUICK).value > 0
        finally:
            peer.kill()
