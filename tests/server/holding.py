"""How much a server holds: the sizes of all containers that can be reached from it.

Owns: the walk, by reflection, so that a container of tomorrow is counted, too. Must not know: what
any of them is for.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

_LEAVES = (
    str, bytes, bytearray, int, float, bool, type(None), type, ModuleType, CodeType, FrameType,
    asyncio.AbstractEventLoop,
)  # fmt: skip


def sizes(roots: Iterable[object]) -> Counter[str]:
    """How many entries there are, by what holds them: `Class.attribute`, instances by `Class`.

    Looks into objects of any class, containers, functions' closures, tasks, timers.
    """
    gc.collect()
    found: Counter[str] = Counter()
    seen: set[int] = set()
    pending: deque[tuple[str, Any]] = deque(("root", root) for root in roots)
    kept: list[object] = []
    while pending:
        where, value = pending.popleft()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        kept.append(value)
        if isinstance(value, dict):
            found[where] += len(value)
            pending.extend((where, inner) for pair in [*value.items()] for inner in pair)
        elif isinstance(value, list | tuple | set | frozenset | deque):
            if not isinstance(value, tuple):
                found[where] += len(value)
            pending.extend((where, inner) for inner in [*value])
        else:
            name = type(value).__name__
            found[name] += 1
            pending.extend((f"{name}.{attribute}", inner) for attribute, inner in _parts(value))
    return found


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object that is not a container refers to."""
    if isinstance(value, MethodType):
        yield "self", value.__self__
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            try:
                yield "closure", cell.cell_contents
            except ValueError:
                continue
    elif isinstance(value, partial):
        yield "arguments", [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, asyncio.Future):
        if value.done() and not value.cancelled() and value.exception() is None:
            yield "result", value.result()
        yield "callbacks", getattr(value, "_callbacks", None)
    elif isinstance(value, asyncio.Handle):
        yield "callback", getattr(value, "_callback", None)
        yield "arguments", getattr(value, "_args", None)
    else:
        yield from vars(value).items() if hasattr(value, "__dict__") else ()
        for kind in type(value).__mro__:
            names = kind.__dict__.get("__slots__", ())
            for name in (names,) if isinstance(names, str) else names:
                mangled = f"_{kind.__name__}{name}" if name.startswith("__") else name
                if hasattr(value, mangled):
                    yield name, getattr(value, mangled)


def grown(before: Counter[str], after: Counter[str], more_than: int) -> dict[str, tuple[int, int]]:
    """What has grown by more than so many entries."""
    return {
        where: (before[where], count)
        for where, count in after.items()
        if count - before[where] > more_than
    }
