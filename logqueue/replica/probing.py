"""Whether a store keeps the conditions of writes, tried out before anything rests on them.

Owns: the probe. Must not know: replicas. Some servers that speak S3 overwrite in spite of the
condition, and two writers of one log would destroy each other's chunks without noticing.
"""

from __future__ import annotations

from contextlib import suppress

from logqueue.replica.object_store import (
    ObjectChanged,
    ObjectExists,
    ObjectStore,
    StoreError,
    StoreRefused,
)


def require_conditions(store: ObjectStore, name: str) -> None:
    """Refuse a store that creates what is there, or replaces what has changed.

    Args:
        store: Where an object is made for this, and removed.
        name: Part of its key that no other caller uses.

    Raises:
        StoreRefused: The store does not keep the conditions.
        StoreError: It cannot be read or written.
    """
    key = f"probes/{name}"
    try:
        with suppress(ObjectExists):
            store.create(key, b"created")
        try:
            store.create(key, b"created again")
        except ObjectExists:
            pass
        else:
            raise _unfit(store, "creates objects that are there already (If-None-Match)")
        version = store.get(key).version
        with suppress(ObjectChanged):
            store.replace(key, b"replaced", version)
        try:
            store.replace(key, b"replaced again", version)
        except ObjectChanged:
            pass
        else:
            raise _unfit(store, "replaces objects that have changed (If-Match)")
    finally:
        with suppress(StoreError):
            store.delete([key])


def _unfit(store: ObjectStore, what: str) -> StoreRefused:
    return StoreRefused(
        f"{store.url}: this store {what}, so it cannot keep two servers from writing one log: use "
        "a newer version of it, or another store"
    )
