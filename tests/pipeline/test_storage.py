"""Places of files: what is written whole, and one process at a time."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.storage.bucket_tree import LOCK_S, BucketLock
from logqueue.pipeline.storage.opening import open_tree
from logqueue.pipeline.storage.tree import FileTree
from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.object_store import ObjectStore, StoreUnavailable


@pytest.fixture(params=["directory", "bucket"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> FileTree:
    if request.param == "directory":
        return open_tree(str(tmp_path / "root"))
    return open_tree(f"memory://{tmp_path.name}-{os.getpid()}/root")


def test_files_by_name(tree: FileTree) -> None:
    assert tree.info("a/b") is None and not tree.folders() and not [*tree.files()]
    with pytest.raises(FileNotFoundError):
        tree.read("a/b")
    assert tree.create("a/b", b"1") and tree.create("a/b", b"1")
    assert not tree.create("a/b", b"2"), "another one is there"
    tree.replace("a/c/d", b"22")
    with tree.scratch("e") as draft:
        Path(draft).write_bytes(b"333")
        tree.add(draft, "e")
    same: FileTree = pickle.loads(pickle.dumps(tree))
    found = {file.name: file.bytes for file in same.files()}
    assert found == {"a/b": 1, "a/c/d": 2, "e": 3}
    assert [file.name for file in same.below("a").files("c/")] == ["c/d"]
    assert (same.folders(), same.folders("a/")) == (["a"], ["c"])
    assert same.below("a").read("b") == b"1" and same.below("a").path("b") == tree.path("a/b")
    tree.remove(["a/c/d", "nothing"])
    assert tree.folders("a/") == []


def test_one_process_works_at_a_place(tree: FileTree) -> None:
    with tree.lock("publish"):
        with pytest.raises(PipelineError, match=r"process \d+ on .* is working on"):
            tree.lock("publish").__enter__()
        with tree.lock("other"):
            pass
    with tree.lock("publish"):
        pass
    assert not [*tree.files()], "locks are not files of the place"


def test_the_lock_of_a_killed_process_runs_out() -> None:
    """And the process that was stopped for too long does not give away the lock of the next."""
    now = 0
    store = MemoryStore()

    def lock() -> BucketLock:
        return BucketLock(store, "_lock-publish", "publish", lambda: now)

    first = lock()
    first.__enter__()
    now = LOCK_S * 1000 - 1
    with pytest.raises(PipelineError, match="runs out after 1 s"):
        lock().__enter__()
    now = LOCK_S * 1000
    with lock():
        first.__exit__(None, None, None)
        with pytest.raises(PipelineError, match="is working on"):
            lock().__enter__()


def test_a_write_whose_reply_is_lost_counts_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = open_tree(f"memory://lost-reply-{os.getpid()}")
    whole = MemoryStore.create
    left = 1

    def loses_a_reply(store: ObjectStore, key: str, data: bytes) -> str:
        nonlocal left
        version = whole(store, key, data)  # type: ignore[arg-type]
        if left:
            left -= 1
            raise StoreUnavailable("the connection broke")
        return version

    monkeypatch.setattr(MemoryStore, "create", loses_a_reply)
    assert tree.create("a", b"1")
    assert not tree.create("a", b"2")
