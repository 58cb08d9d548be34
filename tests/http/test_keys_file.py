"""Keys in a file change while the server runs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from logqueue.model.scopes import Scope
from logqueue.server.auth import KEYS_FILE_BYTES_MAX, KeyListError, parse_keys_file
from tests.http import rawhttp
from tests.http.api import JSON, Api
from tests.http.conftest import ApiFor
from tests.http.expect import eventually, ok, refused
from tests.http.process import ServerProcess, run_to_end
from tests.http.waiting import Waiters, datas
from tests.http.ws import Socket

KEYS = "# who may what\nops\n\n  worker:read+write:jobs.  \r\nreader:read, other\n"


class Place:
    """A server with a file of keys."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "keys.txt"
        self.path.write_text(KEYS)
        flags = ["--keys-file", str(self.path)]
        self.server = ServerProcess(directory / "data", flags=flags).start()

    def reload(self, text: str, *, failures: int = 0) -> None:
        """Change the file, and have the server read it."""
        self.path.write_text(text)
        before = self.server.log().count("keys.txt")
        self.server.send_signal(signal.SIGHUP)
        eventually(lambda: self.server.log().count("keys.txt") > before)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.server.stop()


def test_a_file_is_a_list_over_lines() -> None:
    ops, worker, reader, other = parse_keys_file(KEYS.encode()).keys
    assert ops.prefixes == other.prefixes == () and worker.prefixes == ("jobs.",)
    assert reader.scopes == Scope.READ
    for bad in (b"", b"# nothing\n \n", b"a\na\n", b"a:nosuch\n", b"x\n" * KEYS_FILE_BYTES_MAX):
        with pytest.raises(KeyListError):
            parse_keys_file(bad)


def test_keys_change_without_a_restart(place: Place, api_for: ApiFor) -> None:
    """New ones work, removed ones do not; those that stay go on, their streams, too."""
    ops, worker = api_for(place.server, "ops"), api_for(place.server, "worker")
    ops.make_queue("jobs.q")
    ops.append("jobs.q", 1, 2)
    session = ok(worker.create_watch({"jobs.q": {}}))["wid"]
    with (
        worker.work("jobs.q", node="gone") as work,
        worker.open_watch(session) as watch,
        ops.work("jobs.q", node="stays", max=5) as staying,
        Socket(ops.address, key="worker") as socket,
    ):
        [job] = work.jobs(1)
        watch.until("caught-up")
        staying.jobs(1)
        assert socket.call("ping")["op"] == "pong"
        place.reload("ops\nnew:read\n")
        assert work.next_event().json()["code"] == 401
        assert work.ended()
        assert watch.until("error")[-1].json()["code"] == "unauthorized"
        assert socket.next_message()["code"] == "unauthorized"
        [again] = staying.jobs(1)
        assert again["$seq"] == job["$seq"], "its lease was given back"
    refused(worker.state("jobs.q"), 401, "unauthorized")
    refused(api_for(place.server, "reader").topics(), 401, "unauthorized")
    assert ok(api_for(place.server, "new").state("jobs.q"))["topic"] == "jobs.q"
    assert ok(ops.state("jobs.q"))["count"] == 2


def test_a_key_that_may_less_is_another_one(place: Place, api_for: ApiFor) -> None:
    """Its streams end, also those that it could open again."""
    ops, other = api_for(place.server, "ops"), api_for(place.server, "other")
    ops.make_queue("jobs.q")
    session = ok(other.create_watch({"jobs.q": {}}))["wid"]
    with other.work("jobs.q", node="w") as work:
        work.next_frame()
        place.reload(KEYS.replace("other", "other:read+write:jobs."))
        assert work.next_event().event == "error"
    refused(other.put("jobs.q"), 403, "forbidden")
    with other.open_watch(session) as watch:
        assert watch.status == 404
    with other.work("jobs.q", node="w") as work:
        assert work.status == 200


def test_long_polls_of_a_removed_key_end(place: Place, api_for: ApiFor) -> None:
    """They get the 401 of a new request at once, and take no jobs; those of other keys wait on."""
    ops, worker = api_for(place.server, "ops"), api_for(place.server, "worker")
    ops.make_queue("jobs.q")
    ops.make_queue("jobs.windowed", claim_jitter_ms=60_000)
    with Waiters(ops) as stays, Waiters(worker) as leaves, ThreadPoolExecutor(1) as pool:
        staying = stays.start("jobs.q", "stays")
        waiting = leaves.start("jobs.q", "gone")
        gathering = leaves.start("jobs.windowed", "gone", wait_ms=0)
        reading = pool.submit(worker.diff, "jobs.q", wait_ms=30_000)
        eventually(lambda: ops.facts("jobs.q", "last_read_ts")[0])
        place.reload("ops\nworker:read:jobs.\n")
        for call in (waiting, gathering, reading):
            refused(call.result(20.0), 401, "unauthorized")
        assert not staying.done()
        ops.append("jobs.q", "a", "b")
        assert datas(staying) == ["a"]
    assert ops.facts("jobs.q", "ready", "in_flight") == (1, 1)


@pytest.mark.parametrize("route", ["POST claim", "POST diff", "GET work"])
def test_a_key_removed_while_the_body_comes(place: Place, api_for: ApiFor, route: str) -> None:
    """What would last is refused: it would outlive the key."""
    ops = api_for(place.server, "ops")
    ops.make_queue("jobs.q")
    method, verb = route.split()
    body = b'{"node":"w","wait_ms":30000}'
    headers = {**JSON, "authorization": "Bearer worker"}
    whole = rawhttp.request(method, f"/v0/topics/jobs.q/{verb}?node=w", body, headers)
    with closing(rawhttp.Connection(ops.address)) as connection:
        # Once the first request is answered, the head of the second was read.
        connection.send(rawhttp.request("GET", "/v0/health") + whole[: -len(body)])
        assert connection.read_reply().status == 200
        place.reload("ops\n")
        connection.send(body)
        reply = connection.read_reply()
    refused(reply, 401, "unauthorized")


@pytest.mark.parametrize("text", ["", "# none\n", "ops:nosuch\n", "s3same\ns3same\n"])
def test_a_bad_file_changes_nothing(place: Place, api_for: ApiFor, text: str) -> None:
    """And is told of, without the secrets."""
    ops = api_for(place.server, "ops")
    ops.make_queue("jobs.q")
    with ops.work("jobs.q", node="w") as work:
        work.next_frame()
        place.reload(text)
        ops.append("jobs.q", 1)
        assert len(work.jobs(1)) == 1
    said = place.server.log()
    assert "ERROR" in said and "stay valid" in said and "s3same" not in said.partition("ERROR")[2]
    place.path.unlink()
    place.server.send_signal(signal.SIGHUP)
    eventually(lambda: "No such file" in place.server.log())
    assert ok(ops.state("jobs.q"))["count"] == 1
    assert place.server.running


@pytest.mark.parametrize("text", [None, "", "a:nosuch"])
def test_a_start_with_a_bad_file(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "keys.txt"
    if text is not None:
        path.write_text(text)
    flags = ["--port", "0", "--data-dir", str(tmp_path / "data"), "--keys-file", str(path)]
    status, output = run_to_end(flags, {})
    assert status == 2 and "keys.txt" in output and "Traceback" not in output
    assert not (tmp_path / "data").exists()


def test_keys_come_from_one_place(tmp_path: Path) -> None:
    status, output = run_to_end(
        ["--keys-file", "k", "--data-dir", str(tmp_path)], {"API_KEYS": "x"}
    )
    assert status == 2 and "LOGQUEUE_KEYS_FILE" in output


def test_a_public_address_may_have_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.txt"
    path.write_text("ops")
    server = ServerProcess(
        tmp_path / "data", flags=["--keys-file", str(path), "--host", "0.0.0.0"]
    ).start()
    with Api(server.base_url) as anonymous:
        refused(anonymous.topics(), 401, "unauthorized")
    server.stop()
