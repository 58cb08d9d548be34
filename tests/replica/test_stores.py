"""Every object store keeps the same contract, also when threads race for one key."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from logqueue.extras import MissingExtra
from logqueue.replica.directory_store import VERSIONS_KEPT, DirectoryStore
from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.object_store import (
    ObjectChanged,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    StoreRefused,
    StoreUnavailable,
)
from logqueue.replica.opening import BadReplicaUrl, open_store
from logqueue.replica.probing import require_conditions
from logqueue.testing.simulated_store import SimulatedStore
from tests.effort import scaled
from tests.replica.s3_servers import S3Server, ScriptedServer

pytest.importorskip("obstore")

_prefixes = count(1)

OPENERS = ("memory", "simulated", "directory", "obstore", "s3")


@pytest.fixture(params=OPENERS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], ObjectStore]]:
    """Opens one store, again and again, as several processes would."""
    kind = request.param
    if kind == "memory":
        url = f"memory://contract-{next(_prefixes)}"
        yield lambda: open_store(url)
    elif kind == "simulated":
        shared = SimulatedStore().shared
        yield lambda: SimulatedStore(shared)
    elif kind == "directory":
        yield lambda: open_store(f"file://{tmp_path}/some%20where/replica")
    elif kind == "obstore":
        from obstore.store import MemoryStore as Client

        from logqueue.replica.obstore_adapter import ObstoreAdapter

        client = Client()
        yield lambda: ObstoreAdapter("obstore://", lambda **options: client)
    else:
        s3: S3Server = request.getfixturevalue("s3")
        prefix = f"contract/{os.getpid()}-{next(_prefixes)}"
        with s3.in_environment():
            yield lambda: open_store(f"s3://replicas/{prefix}/")


@pytest.fixture
def store(opener: Callable[[], ObjectStore]) -> ObjectStore:
    return opener()


# -- the contract --------------------------------------------------------------------------------


def test_what_is_created_is_read_and_never_overwritten(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissing, match="chunks/00001"):
        store.get("chunks/00001")
    version = store.create("chunks/00001", b"one")
    assert store.get("chunks/00001") == (b"one", version)
    with pytest.raises(ObjectExists, match="chunks/00001"):
        store.create("chunks/00001", b"two")
    assert store.get("chunks/00001") == (b"one", version)


def test_what_is_replaced_must_be_what_was_read(store: ObjectStore) -> None:
    first = store.create("manifest.json", b"1")
    second = store.replace("manifest.json", b"22", first)
    assert store.get("manifest.json") == (b"22", second)
    with pytest.raises(ObjectChanged, match=r"manifest\.json"):
        store.replace("manifest.json", b"3", first)
    third = store.replace("manifest.json", b"3", store.get("manifest.json").version)
    assert store.get("manifest.json") == (b"3", third)
    assert len({first, second, third}) == 3
    with pytest.raises(ObjectExists):
        store.create("manifest.json", b"4")
    with pytest.raises(ObjectChanged):
        store.replace("other.json", b"", first)


def test_a_put_overwrites_whatever_is_there(store: ObjectStore) -> None:
    for data in (b"a", b"bb", b""):
        store.put("heartbeat.json", data)
        assert store.get("heartbeat.json").data == data
    version = store.get("heartbeat.json").version
    store.put("heartbeat.json", b"other")
    with pytest.raises(ObjectChanged):
        store.replace("heartbeat.json", b"x", version)
    version = store.get("heartbeat.json").version
    replaced = store.replace("heartbeat.json", b"y", version)
    store.put("heartbeat.json", b"z")
    assert store.get("heartbeat.json").data == b"z"
    with pytest.raises(ObjectChanged):
        store.replace("heartbeat.json", b"x", replaced)


def test_ranges_end_where_the_object_ends(store: ObjectStore) -> None:
    store.create("segments/jobs/1.wal", bytes(range(100)))
    assert store.get_range("segments/jobs/1.wal", 10, 5) == bytes(range(10, 15))
    assert store.get_range("segments/jobs/1.wal", 95, 50) == bytes(range(95, 100))
    assert store.get_range("segments/jobs/1.wal", 100, 5) == b""
    assert store.get_range("segments/jobs/1.wal", 500, 5) == b""
    assert store.get_range("segments/jobs/1.wal", 5, 0) == b""
    with pytest.raises(ObjectMissing):
        store.get_range("segments/jobs/2.wal", 0, 5)


def test_lists_are_by_key_and_begin_behind_a_key(store: ObjectStore) -> None:
    keys = ["chunks/003", "chunks/001", "chunks-old/1", "chunks/002", "manifest.json", "chunks.x"]
    version = ""
    for key in keys:
        version = store.create(key, key.encode())
    store.replace("chunks.x", b"four", version)

    def listed(prefix: str = "", after: str = "") -> list[str]:
        return [info.key for info in store.list(prefix, after)]

    assert listed() == sorted(keys)
    assert listed("chunks/") == ["chunks/001", "chunks/002", "chunks/003"]
    assert listed("chunks/", "chunks/001") == ["chunks/002", "chunks/003"]
    assert listed("chunks/", "chunks/0015") == ["chunks/002", "chunks/003"]
    assert listed("chunks/", "chunks/003") == []
    assert listed("chunks/00") == ["chunks/001", "chunks/002", "chunks/003"]
    assert listed("chunks", "chunks-old/1") == ["chunks.x", *listed("chunks/")]
    assert listed("nothing/") == []
    found = {info.key: info for info in store.list()}
    assert found["chunks/001"].bytes == len("chunks/001")
    assert found["chunks.x"].bytes == 4
    assert found["chunks/001"].modified_ms > 0 or isinstance(store, SimulatedStore)


def test_what_is_deleted_is_gone_and_may_be_gone_before(store: ObjectStore) -> None:
    version = store.create("a/1", b"1")
    store.replace("a/1", b"2", version)
    for key in ("a/2", "a/3"):
        store.create(key, b"")
    store.delete(["a/1", "a/2", "a/none"])
    store.delete([])
    assert [info.key for info in store.list()] == ["a/3"]
    with pytest.raises(ObjectMissing):
        store.get("a/1")
    store.create("a/1", b"again")
    assert store.get("a/1").data == b"again"


def test_an_object_has_any_bytes(store: ObjectStore) -> None:
    large = bytes(range(256)) * 8192 * 6  # 12 MiB: more than one part of an upload would have
    for key, data in (("empty", b""), ("large", large), ("lines", b"\r\n\0\xff")):
        store.create(key, data)
        assert store.get(key).data == data


# -- races ---------------------------------------------------------------------------------------


def _at_once(actors: int, act: Callable[[int], None]) -> None:
    barrier = threading.Barrier(actors)
    failures: list[BaseException] = []

    def run(actor: int) -> None:
        barrier.wait()
        try:
            act(actor)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(actor,)) for actor in range(actors)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_one_of_many_creates_an_object(opener: Callable[[], ObjectStore]) -> None:
    for number in range(scaled(3, 30)):
        won: list[int] = []

        def create(actor: int, key: str = f"chunks/{number}", won: list[int] = won) -> None:
            store = opener()
            try:
                store.create(key, f"{actor}".encode() * 1000)
                won.append(actor)
            except ObjectExists:
                pass

        _at_once(6, create)
        assert len(won) == 1
        assert opener().get(f"chunks/{number}").data == f"{won[0]}".encode() * 1000


def test_no_replacement_is_lost(opener: Callable[[], ObjectStore]) -> None:
    opener().create("counter", b"0")
    each = scaled(4, 40)

    def add(actor: int) -> None:
        store = opener()
        for _ in range(each):
            while True:
                data, version = store.get("counter")
                try:
                    store.replace("counter", b"%d" % (int(data) + 1), version)
                    break
                except ObjectChanged:
                    continue

    _at_once(4, add)
    assert opener().get("counter").data == b"%d" % (4 * each)


# -- stores that are not fit ---------------------------------------------------------------------


def test_a_store_that_keeps_its_conditions_is_taken(store: ObjectStore) -> None:
    require_conditions(store, "me")
    require_conditions(store, "me")
    assert [info.key for info in store.list()] == []


def test_a_store_that_ignores_conditions_is_refused() -> None:
    class Careless(MemoryStore):
        def create(self, key: str, data: bytes) -> str:
            self.put(key, data)
            return self.get(key).version

    class Forgetful(MemoryStore):
        def replace(self, key: str, data: bytes, version: str) -> str:
            self.put(key, data)
            return self.get(key).version

    for unfit, said in ((Careless(), "If-None-Match"), (Forgetful(), "If-Match")):
        with pytest.raises(StoreRefused, match=said):
            require_conditions(unfit, "me")
        assert [info.key for info in unfit.list()] == []


# -- directories ---------------------------------------------------------------------------------


def test_a_directory_keeps_few_versions_and_refuses_one_that_is_long_gone(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path))
    first = store.create("manifest.json", b"0")
    stale = store.replace("manifest.json", b"1", first)
    version = stale
    for number in range(3 * VERSIONS_KEPT):
        version = store.replace("manifest.json", b"%d" % number, version)
    assert len(list(tmp_path.glob("manifest.json~/*"))) == VERSIONS_KEPT
    for old in (first, stale):
        with pytest.raises(ObjectChanged):
            store.replace("manifest.json", b"stale", old)
    assert store.get("manifest.json").data == b"%d" % (3 * VERSIONS_KEPT - 1)
    assert list((tmp_path / ".drafts").iterdir()) == []


def test_a_process_that_slept_over_its_replacement_never_hears_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has compared the version, and sleeps before it writes: until the number that it is about
    to take was used and removed again."""
    store, others = DirectoryStore(str(tmp_path)), DirectoryStore(str(tmp_path))
    version = store.create("manifest.json", b"0")
    link = os.link
    is_asleep = True

    def sleep(source: str, target: str) -> None:
        nonlocal is_asleep
        if is_asleep and target.endswith("~/" + "2".zfill(20)):
            is_asleep = False
            current = version
            for number in range(2 * VERSIONS_KEPT):
                current = others.replace("manifest.json", b"%d" % number, current)
        link(source, target)

    monkeypatch.setattr(os, "link", sleep)
    with pytest.raises(StoreUnavailable, match="many times"):
        store.replace("manifest.json", b"stale", version)
    assert not is_asleep
    assert others.get("manifest.json").data == b"%d" % (2 * VERSIONS_KEPT - 1)


def test_a_directory_syncs_an_object_before_it_has_a_name_and_the_name_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(str(tmp_path / "new"))
    steps: list[str] = []
    fsync, link, rename = os.fsync, os.link, os.rename

    def synced(file: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        steps.append(f"sync {'draft' if path.parent.name == '.drafts' else path.name}")
        fsync(file)

    def linked(old: str, new: str) -> None:
        steps.append(f"name {Path(new).name}")
        link(old, new)

    def renamed(old: str, new: str) -> None:
        steps.append(f"name {Path(new).name}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(os, "rename", renamed)
    version = store.create("chunks/1", b"x")
    assert steps[-4:] == ["sync draft", "sync new", "name 1", "sync chunks"]
    assert steps[:2] == [f"sync {tmp_path.name}", "sync new"]  # the directory, its drafts
    steps.clear()
    store.replace("chunks/1", b"y", version)
    assert steps == ["sync draft", "sync chunks", "name " + "2".zfill(20), "sync 1~"]
    steps.clear()
    store.put("chunks/3", b"z")
    assert steps == ["sync draft", "name 3", "sync chunks"]


def test_a_link_that_a_network_file_system_did_twice_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def twice(old: str, new: str) -> None:
        link(old, new)
        raise FileExistsError(17, "File exists", new)

    monkeypatch.setattr(os, "link", twice)
    store = DirectoryStore(str(tmp_path))
    store.create("chunks/1", b"mine")
    assert store.get("chunks/1").data == b"mine"


def test_a_file_system_without_links_and_one_without_space_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    def fails(number: int) -> Callable[[str, str], None]:
        def link(old: str, new: str) -> None:
            raise OSError(number, os.strerror(number))

        return link

    store = DirectoryStore(str(tmp_path))
    monkeypatch.setattr(os, "link", fails(errno.EPERM))
    with pytest.raises(StoreRefused, match="cannot link files"):
        store.create("chunks/1", b"")
    monkeypatch.setattr(os, "link", fails(errno.ENOSPC))
    with pytest.raises(StoreUnavailable, match="No space left"):
        store.create("chunks/1", b"")
    with pytest.raises(StoreRefused, match="not a key"):
        store.create("../outside", b"")


def test_drafts_of_processes_that_died_are_removed_in_time(tmp_path: Path) -> None:
    drafts = tmp_path / ".drafts"
    drafts.mkdir()
    for name in ("old", "new"):
        (drafts / name).write_bytes(b"")
    os.utime(drafts / "old", (0, 0))
    DirectoryStore(str(tmp_path)).create("chunks/1", b"")
    assert [path.name for path in drafts.iterdir()] == ["new"]


# -- what an S3 server may say -------------------------------------------------------------------


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    with server.s3.in_environment():
        yield server
    server.close()


CREATE_SAYS = [
    (412, "PreconditionFailed", ObjectExists),
    (409, "ConditionalRequestConflict", StoreUnavailable),
    (409, "OperationAborted", StoreUnavailable),
    (404, "NoSuchBucket", StoreRefused),
    (403, "AccessDenied", StoreRefused),
    (401, "Unauthorized", StoreRefused),
    (400, "InvalidRequest", StoreRefused),
    (400, "RequestTimeout", StoreUnavailable),
    (501, "NotImplemented", StoreRefused),
    (500, "InternalError", StoreUnavailable),
    (503, "SlowDown", StoreUnavailable),
    (429, "TooManyRequests", StoreUnavailable),
]


@pytest.mark.parametrize(("status", "code", "error"), CREATE_SAYS)
def test_a_create_is_sent_once_and_its_reply_means_one_thing(
    scripted: ScriptedServer, status: int, code: str, error: type[Exception]
) -> None:
    scripted.says(status, code)
    with pytest.raises(error, match=rf"s3://bucket/some/where/chunks/1: .*{code}") as found:
        open_store("s3://bucket/some/where").create("chunks/1", b"data")
    assert type(found.value) is error
    assert len(scripted.requests) == 1
    assert "tests-secret" not in str(found.value)


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        *(row for row in CREATE_SAYS if row[0] != 412),
        (412, "PreconditionFailed", ObjectChanged),
        (404, "NoSuchKey", ObjectChanged),
    ],
)
def test_a_replacement_is_sent_once_and_its_reply_means_one_thing(
    scripted: ScriptedServer, status: int, code: str, error: type[Exception]
) -> None:
    scripted.says(status, code)
    with pytest.raises(error, match=code) as found:
        open_store("s3://bucket/some/where").replace("manifest.json", b"data", '"tag"')
    assert type(found.value) is error
    assert len(scripted.requests) == 1


def test_a_write_without_a_reply_is_unknown_and_not_repeated(scripted: ScriptedServer) -> None:
    store = open_store("s3://bucket")
    writes: list[Callable[[], object]] = [
        lambda: store.create("chunks/1", b"data"),
        lambda: store.replace("manifest.json", b"data", '"tag"'),
    ]
    for write in writes:
        # Over a connection of its own, and over one that was used before.
        for before in range(2):
            scripted.requests.clear()
            if before:
                scripted.says(200, headers='etag: "tag"\r\n')
                write()
            scripted.hangs_up()
            with pytest.raises(StoreUnavailable):
                write()
            assert len(scripted.requests) == 1 + before


def test_reads_are_repeated(scripted: ScriptedServer) -> None:
    scripted.says(500, "InternalError")
    scripted.says(
        200, headers='etag: "tag"\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n', body="data"
    )
    assert open_store("s3://bucket").get("chunks/1") == (b"data", '"tag"')
    assert len(scripted.requests) == 2


def test_a_store_that_is_not_there_is_unavailable(scripted: ScriptedServer) -> None:
    scripted.close()
    store = open_store("s3://bucket")
    with pytest.raises(StoreUnavailable):
        store.create("chunks/1", b"data")
    with pytest.raises(StoreUnavailable):
        store.get("chunks/1")


@pytest.mark.parametrize("method", ["get", "list", "delete", "get_range", "put"])
def test_a_bucket_that_is_not_there_is_not_an_object_that_is_not_there(
    s3: S3Server, method: str
) -> None:
    with s3.in_environment():
        store = open_store("s3://no-such-bucket")
    calls: dict[str, Callable[[], object]] = {
        "get": lambda: store.get("manifest.json"),
        "get_range": lambda: store.get_range("manifest.json", 0, 1),
        "list": lambda: list(store.list()),
        "delete": lambda: store.delete(["a", "b"]),
        "put": lambda: store.put("a", b""),
    }
    with pytest.raises(StoreRefused, match="make the bucket first"):
        calls[method]()


# -- URLs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "has a scheme"),
        ("/mnt/nas", "file:///mnt/nas"),
        ("relative", "file:///"),
        ("ftp://host/path", "unknown kind of replica 'ftp://'"),
        ("file://relative/path", "file:///PATH"),
        ("file:///", "file:///PATH"),
        ("file:///a%00b", "NUL"),
        ("s3://", "the bucket is missing"),
        ("s3:///prefix", "the bucket is missing"),
        ("az://", "the container is missing"),
        ("s3://key:secret@bucket/prefix", "no credentials"),
        ("s3://bucket/prefix?region=x", "environment"),
        ("s3://bucket/prefix#x", "environment"),
        ("s3://bucket/a//b", "single slashes"),
        ("s3://bucket/a/../b", "single slashes"),
        ("s3://bucket/a b", "single slashes"),
        ("s3://[/", "invalid URL"),
    ],
)
def test_bad_urls_are_refused_with_what_to_write(url: str, said: str) -> None:
    with pytest.raises(BadReplicaUrl) as found:
        open_store(url)
    assert said in str(found.value)
    assert "secret" not in str(found.value)


def test_good_urls_name_their_store_without_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    for url, named in (
        (f"file://{tmp_path}/a%20b/", f"file://{tmp_path}/a b"),
        ("file://localhost/mnt/x", "file:///mnt/x"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/some/where/", "s3://bucket/some/where"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("az://container/x", "az://container/x"),
    ):
        assert open_store(url).url == named
    assert open_store("memory://a") is open_store("memory://a/")
    assert open_store("memory://a") is not open_store("memory://b")
    assert isinstance(open_store("memory://a"), MemoryStore)


def test_only_stores_of_clouds_need_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "logqueue.replica.obstore_adapter", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    open_store(f"file://{tmp_path}")
    with pytest.raises(MissingExtra, match=r"logqueue\[replica\]"):
        open_store("s3://bucket")
    code = (
        "import sys; from logqueue.replica.opening import open_store; "
        f"open_store('file://{tmp_path}').create('a', b''); sys.exit('obstore' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
