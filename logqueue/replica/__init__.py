"""The log in object storage: a complete, restorable copy of both logs below one URL.

Owns: the objects of a replica and what they mean (`chunk.py`, `manifest.py`), who may write them
(epochs, fencing), how they are read back, and the seam to object stores (`object_store.py`). The
protocol and its invariants are in docs/replication.md. Must not know: the state, commands, HTTP,
asyncio.
"""
