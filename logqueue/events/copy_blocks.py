"""The bytes of a router's copies, from those of the originals.

Owns: which columns a copy keeps, and what the meta of an `exactly_once` copy says. Must not know:
topics, routers' progress, where the originals are; readers of the log derive copies from here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from logqueue.events import block as blocks
from logqueue.model import limits
from logqueue.model.config import RouterOptions

STAMP = "$router"
"""Where the meta of an `exactly_once` copy says what it is a copy of."""

UNSTAMPED_META = "$router_meta"
"""Where such a copy keeps the original meta when that had no room for the stamp."""

_encoder = msgspec.json.Encoder()
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])

Edge = tuple[str, int, str, int]
"""Name and number of a router, name and number of its source."""


class Original(NamedTuple):
    """What a copy keeps of a record: its texts, its priority, its group."""

    texts: blocks.Texts
    priority: int = 0
    group: bytes = b""


def original_at(view: blocks.BlockView, index: int) -> Original:
    """A record of a block."""
    texts = view.texts(index)
    return Original(texts, view.number(blocks.PRIORITY, index), view.text(blocks.GROUP, index))


def pack_copies(
    edge: Edge, options: RouterOptions, seqs: Sequence[int], originals: Sequence[Original]
) -> bytes:
    """The block of some records' copies.

    Args:
        edge: Which router makes them.
        options: Its options at that time.
        seqs: Of the originals.
        originals: The records.
    """
    columns = [
        [original.texts[c] for original in originals] for c in range(len(blocks.TEXT_COLUMNS))
    ]
    if options.guarantee == "exactly_once":
        metas = zip(columns[blocks.META], seqs, strict=True)
        columns[blocks.META] = [_stamped(meta, edge, seq) for meta, seq in metas]
    if not options.preserve_tag:
        columns[blocks.TAG] = []
    if not options.preserve_node:
        columns[blocks.NODE] = []
    order = [(original.priority, original.group) for original in originals]
    return pack_ordered(columns, order)


def pack_ordered(columns: Sequence[Sequence[bytes]], order: Sequence[tuple[int, bytes]]) -> bytes:
    """A block of some text columns, from the data on, and of priorities and groups; what no record
    uses is left out."""
    texts: list[Sequence[bytes] | None] = [c if any(c) else None for c in columns]
    groups = [group for _, group in order]
    if any(groups):
        texts += [None] * (blocks.GROUP - len(texts))
        texts.append(groups)
    priorities = [priority for priority, _ in order]
    return blocks.pack(texts, numbers={blocks.PRIORITY: priorities} if any(priorities) else None)


def _stamped(meta: bytes, edge: Edge, seq: int) -> bytes:
    """A copy's meta: the original with what it is a copy of."""
    name, number, source_name, source = edge
    keys: dict[str, msgspec.Raw] = {}
    if meta.startswith(b"{"):
        keys = _objects.decode(meta)
    if meta and (not meta.startswith(b"{") or len(keys) >= limits.META_KEYS_MAX):
        keys = {UNSTAMPED_META: msgspec.Raw(meta)}
    stamp = {
        "key": f"{name}/{number}/{source}/{seq}",
        "router": name,
        "source": source_name,
        "source_instance": source,
        "epoch": number,
        "source_seq": seq,
    }
    keys[STAMP] = msgspec.Raw(_encoder.encode(stamp))
    return _encoder.encode(keys)
