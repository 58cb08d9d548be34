"""An object store that fails by chance, the same way every time for the same seed.

Owns: the faults, and the points at which a scheduler may let another caller go on. Must not know:
what the objects mean.

Callers share the objects (one `MemoryStore`) and have a `SimulatedStore` each: latency, faults
and partitions are of the way between one caller and the store. The fault model:

    - Whatever took effect is seen by every later call of every caller.
    - A call may be lost before it takes effect, or its reply after it has: `StoreUnavailable` in
      both cases.
    - A create may arrive twice: it took effect, and the reply says that the object exists.
    - A write may be late: the caller gets `StoreUnavailable`, and it takes effect at some later
      call of any caller, or never.
    - The store may refuse to serve for now: `StoreUnavailable`, without effect.
    - A reply to a get may break off: `StoreUnavailable`.
    - A list comes in pages; what is created or removed between two of them is seen or not, by key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from random import Random
from typing import Literal, NamedTuple, TypeVar

from logqueue.replica.memory_store import MemoryStore
from logqueue.replica.object_store import (
    ObjectExists,
    ObjectInfo,
    StoredObject,
    StoreError,
    StoreUnavailable,
)

T = TypeVar("T")

StoreMethod = Literal["create", "replace", "put", "get", "get_range", "list", "delete"]
Moment = Literal["before", "after"]


class StoreCall(NamedTuple):
    """A call as a scheduler sees it.

    Attributes:
        caller: Name of the caller.
        method: Which method; each page of a list is a call.
        key: Of the object; of a list, the prefix; of a delete, the first key.
    """

    caller: str
    method: StoreMethod
    key: str


@dataclass(frozen=True)
class StoreFaults:
    """How likely each fault is, per call, from 0.0 to 1.0.

    Attributes:
        lost_before: The call never arrives.
        lost_after: The call takes effect, its reply is lost.
        repeated: A create takes effect, and its reply says that the object exists.
        late: A write fails with `StoreUnavailable`, and takes effect later.
        throttled: The store says to try again.
        torn: The reply to a get breaks off.
        latency_s: Least and greatest time that a call takes, in seconds.
        page: Keys in a page of a list.
    """

    lost_before: float = 0.0
    lost_after: float = 0.0
    repeated: float = 0.0
    late: float = 0.0
    throttled: float = 0.0
    torn: float = 0.0
    latency_s: tuple[float, float] = (0.0, 0.0)
    page: int = 1000


NO_FAULTS = StoreFaults()
SOME_FAULTS = StoreFaults(
    lost_before=0.04,
    lost_after=0.04,
    repeated=0.02,
    late=0.02,
    throttled=0.03,
    torn=0.03,
    latency_s=(0.001, 0.2),
    page=3,
)


@dataclass
class SimulatedObjects:
    """What all callers share.

    Attributes:
        objects: What is there.
        late: Writes that are on their way.
    """

    objects: MemoryStore = field(default_factory=lambda: MemoryStore("sim://replica"))
    late: list[Callable[[], object]] = field(default_factory=list)


class SimulatedStore:
    """One caller's way to the objects.

    Attributes:
        is_cut_off: While true, no call arrives: a partition.
        calls: How many calls have been made, by method.
    """

    def __init__(
        self,
        shared: SimulatedObjects | None = None,
        *,
        caller: str = "",
        seed: int | str = 0,
        faults: StoreFaults = NO_FAULTS,
        pause: Callable[[float], None] = lambda seconds: None,
        on_call: Callable[[StoreCall, Moment], None] = lambda call, moment: None,
    ) -> None:
        """Make a way to the objects.

        Args:
            shared: The objects; new ones by default.
            caller: A name for the scheduler.
            seed: Of its faults.
            faults: How likely each is.
            pause: Lets time pass by the clock of the simulation, in seconds.
            on_call: Called before each call takes effect and after it did, before the caller
                learns of it. What it raises goes to the caller: raise from a `BaseException` for
                a crash.
        """
        self.shared = shared or SimulatedObjects()
        self.faults = faults
        self.is_cut_off = False
        self.calls: dict[StoreMethod, int] = {}
        self._caller = caller
        self._rng = Random(f"store/{caller}/{seed}")
        self._pause = pause
        self._on_call = on_call

    @property
    def url(self) -> str:
        """See ObjectStore."""
        return self.shared.objects.url

    def create(self, key: str, data: bytes) -> str:
        """See ObjectStore."""
        version = self._write("create", key, lambda: self.shared.objects.create(key, data))
        if self._happens(self.faults.repeated):
            raise ObjectExists(f"{self.url}/{key} is there already")
        return version

    def replace(self, key: str, data: bytes, version: str) -> str:
        """See ObjectStore."""
        return self._write("replace", key, lambda: self.shared.objects.replace(key, data, version))

    def put(self, key: str, data: bytes) -> None:
        """See ObjectStore."""
        self._write("put", key, lambda: self.shared.objects.put(key, data))

    def get(self, key: str) -> StoredObject:
        """See ObjectStore."""
        found = self._call("get", key, lambda: self.shared.objects.get(key))
        self._tear(key)
        return found

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        found = self._call(
            "get_range", key, lambda: self.shared.objects.get_range(key, start, length)
        )
        self._tear(key)
        return found

    def list(self, prefix: str = "", after: str = "") -> Iterator[ObjectInfo]:
        """See ObjectStore."""
        while True:
            page = self._call("list", prefix, partial(self._page, prefix, after))
            yield from page
            if len(page) < self.faults.page:
                return
            after = page[-1].key

    def delete(self, keys: Iterable[str]) -> None:
        """See ObjectStore."""
        every = [*keys]
        # A request with many keys may stop half-way.
        for key in every:
            self._write("delete", key, partial(self.shared.objects.delete, (key,)))

    # -- faults ----------------------------------------------------------------------------------

    def _page(self, prefix: str, after: str) -> tuple[ObjectInfo, ...]:
        return tuple(islice(self.shared.objects.list(prefix, after), self.faults.page))

    def _write(self, method: StoreMethod, key: str, take_effect: Callable[[], T]) -> T:
        if self._happens(self.faults.late):

            def later() -> T:
                self.shared.late.append(take_effect)
                raise StoreUnavailable(f"{self.url}/{key}: no reply in time (simulated)")

            return self._call(method, key, later)
        return self._call(method, key, take_effect)

    def _call(self, method: StoreMethod, key: str, take_effect: Callable[[], T]) -> T:
        call = StoreCall(self._caller, method, key)
        self.calls[method] = self.calls.get(method, 0) + 1
        self._on_call(call, "before")
        self._take_time()
        self._let_late_ones_arrive()
        if self.is_cut_off or self._happens(self.faults.lost_before):
            raise StoreUnavailable(f"{self.url}/{key}: the store cannot be reached (simulated)")
        if self._happens(self.faults.throttled):
            raise StoreUnavailable(f"{self.url}/{key}: the store says to slow down (simulated)")
        # A refusal is a reply, too, and may be lost.
        failure: StoreError | None = None
        result: list[T] = []
        try:
            result.append(take_effect())
        except StoreError as error:
            failure = error
        self._on_call(call, "after")
        self._take_time()
        if self.is_cut_off or self._happens(self.faults.lost_after):
            raise StoreUnavailable(f"{self.url}/{key}: the reply was lost (simulated)")
        if failure is not None:
            raise failure
        return result[0]

    def _tear(self, key: str) -> None:
        if self._happens(self.faults.torn):
            raise StoreUnavailable(f"{self.url}/{key}: the reply broke off (simulated)")

    def _let_late_ones_arrive(self) -> None:
        while self.shared.late and self._happens(0.3):
            take_effect = self.shared.late.pop(self._rng.randrange(len(self.shared.late)))
            with suppress(StoreError):
                take_effect()

    def _take_time(self) -> None:
        least, greatest = self.faults.latency_s
        if greatest:
            self._pause(self._rng.uniform(least, greatest) / 2)

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self._rng.random() < chance
