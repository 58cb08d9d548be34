"""Deciding a claim: how many jobs may go, which they are, and who gets which.

Owns: the pass over a queue. Nothing here changes the state. Jobs whose leases have run out come in
as `elapse` gets to them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import chain, islice, repeat
from operator import attrgetter
from typing import NamedTuple, Protocol

from logqueue import events as ev
from logqueue.core import commands as cmd
from logqueue.core.claim_order import ClaimOrder, Sift
from logqueue.core.decide.dead_letters import exhaust, hold_unreadable
from logqueue.core.decide.decision import AfterApply, Decision
from logqueue.core.job_filter import state_of
from logqueue.core.queue_topic import QueueTopic
from logqueue.core.record_times import due_at, untimed
from logqueue.core.state import State
from logqueue.core.topic import Topic
from logqueue.errors import StorageUnreadable
from logqueue.events import block as blocks
from logqueue.model import limits

SEQS_SCANNED_AGAIN_MAX = 1000
"""An empty pass that looked at more than this leaves the cursor behind them all the same."""
AHEAD_SCANNED_MAX = 2000
"""Jobs that are looked at to count those before one."""
assert limits.FRESH_SCANNED_MAX > SEQS_SCANNED_AGAIN_MAX, "a pass that is cut must get on"


class Share(Protocol):
    """Deals jobs to claimers, by how many each wants."""

    def __call__(
        self, demands: Sequence[int], seqs: list[int], *, is_ordered: bool = False
    ) -> list[list[int]]:
        """See `share_evenly`."""
        ...


_claimers = attrgetter("claimers")
_jobs_max = attrgetter("jobs_max")
_deliveries = attrgetter("deliveries")


def claim(state: State, command: cmd.ClaimJobs, now: int) -> Decision[cmd.ClaimResult]:
    """One pass: pick jobs, take the exhausted out, share the rest evenly."""
    events, result = _pass(state, command, now, share_evenly)
    return Decision(events, AfterApply(result))


def claim_in_turn(
    state: State, members: Sequence[cmd.ClaimJobs], now: int
) -> Decision[list[cmd.ClaimResult]]:
    """Several claims as if one after the other: who comes first gets all it wants."""
    claimers = (*chain.from_iterable(map(_claimers, members)),)
    together = cmd.ClaimJobs(members[0].topic, claimers)
    events, result = _pass(state, together, now, share_in_turn)

    def results() -> list[cmd.ClaimResult]:
        found = result()
        ready = found.ready
        each: list[cmd.ClaimResult] = []
        for jobs in reversed(found.jobs):
            if jobs.seqs:
                each.append(cmd.ClaimResult([jobs], ready, is_cut=found.is_cut))
                ready += len(jobs.seqs)
            else:
                each.append(found._replace(jobs=[jobs]))
        each.reverse()
        return each

    return Decision(events, AfterApply(results))


def _pass(
    state: State, command: cmd.ClaimJobs, now: int, share: Share
) -> tuple[list[ev.Event], Callable[[], cmd.ClaimResult]]:
    """The events of a claim, and what reads its result once they are applied."""
    topic = state.queue(command.topic)
    queue = topic.queue
    demands = [*map(_jobs_max, command.claimers)]
    wanted = sum(demands)
    allowed, limit = allowed_now(topic, now)
    wanted = min(wanted, allowed)
    is_cut = False
    events: list[ev.Event] = []
    picked: list[int] = []
    cursor = queue.cursor
    deal = share if queue.order is None else partial(share, is_ordered=True)
    if wanted:
        bounded = min(wanted, limits.CLAIMED_PER_PASS_MAX)
        picked, cursor, exhausted, is_cut = _pick(topic, bounded, now)
        is_cut = is_cut or len(picked) == bounded < wanted
        if exhausted and command.divert:
            ended = exhaust(state, topic, sorted(exhausted), now)
            events.extend(ended)
            # The next job of such a job's group may go as soon as that is done.
            is_cut = is_cut or (bool(ended) and queue.order is not None)
    try:
        jobs = _leased(state, topic, command, deal(demands, picked), now)
    except StorageUnreadable:
        # A job that cannot be read must not be leased, nor keep those behind it waiting.
        found = topic.readable(sorted(picked))
        events.append(hold_unreadable(topic, [seq for seq in picked if seq not in found], now))
        picked = [seq for seq in picked if seq in found]
        is_cut = True
        jobs = _leased(state, topic, command, deal(demands, picked), now)
    grants = []
    for claimer, leased in zip(command.claimers, jobs, strict=True):
        if leased.seqs:
            grants.append((claimer.node, leased.deadline, claimer.stream, [*leased.seqs]))
    if grants or cursor - queue.cursor > SEQS_SCANNED_AGAIN_MAX:
        # Without a time to live, none is passed over for it.
        may_be_overdue = topic.config.ttl_ms > 0 or topic.attributes is not None
        overdue = may_be_overdue and cursor > queue.cursor and topic.is_due(now)
        events.append(ev.JobsClaimed(now, topic.number, state.next_lease, cursor, grants, overdue))
    stopped_by = limit if len(picked) == allowed else None
    return events, partial(_claimed, topic, jobs, stopped_by, is_cut, now)


def allowed_now(topic: QueueTopic, now: int) -> tuple[int, cmd.NoneReason | None]:
    """How many jobs the queue's limits allow now, and the limit that decides."""
    queue = topic.queue
    config = topic.config
    if config.paused:
        return 0, "paused"
    allowed: int = limits.U32_MAX
    limit: cmd.NoneReason | None = None
    if config.claim_rate is not None:
        allowed, limit = queue.rate_spent.allows(config.claim_rate, now), "rate_limited"
    if config.max_in_flight:
        room = max(config.max_in_flight - queue.leased, 0)
        if room < allowed:
            allowed, limit = room, "max_in_flight"
    return allowed, limit


def _leased(
    state: State, topic: QueueTopic, command: cmd.ClaimJobs, shares: list[list[int]], now: int
) -> list[cmd.ClaimedJobs]:
    """The jobs of each claimer, read before they are leased.

    Raises:
        StorageUnreadable: The disk does not give the data of one.
    """
    jobs: list[cmd.ClaimedJobs] = []
    lease = state.next_lease
    for claimer, seqs in zip(command.claimers, shares, strict=True):
        deadline = now + (claimer.lease_ms or topic.config.lease_ms)
        first, lease = lease, lease + len(seqs)
        jobs.append(cmd.ClaimedJobs(seqs, range(first, lease), deadline))
    together = [*chain.from_iterable(shares)]
    if len(jobs) > 1 and together == sorted(together):
        whole = cmd.ClaimedJobs(together, (), 0)
        _fill(topic, whole)
        _deal(whole, jobs)
    else:
        for leased in jobs:
            _fill(topic, leased)
    return jobs


def _claimed(
    topic: QueueTopic,
    jobs: list[cmd.ClaimedJobs],
    stopped_by: cmd.NoneReason | None,
    is_cut: bool,
    now: int,
) -> cmd.ClaimResult:
    queue = topic.queue
    job_of = queue.jobs.__getitem__
    attributes = topic.attributes
    has_fates = queue.has_errors or queue.has_given_back
    has_fates = has_fates or (attributes is not None and attributes.has_fates)
    has_none = False
    for claimed in jobs:
        claimed.deliveries = [*map(_deliveries, map(job_of, claimed.seqs))]
        if has_fates:
            claimed.fates = _fates(topic, claimed.seqs)
        has_none = has_none or not claimed.seqs
    if not has_none:
        return cmd.ClaimResult(jobs, topic.ready, is_cut=is_cut)
    reason = _why_none(topic, stopped_by)
    return cmd.ClaimResult(jobs, topic.ready, reason, _retry_after(topic, reason, now), is_cut)


def _fill(topic: QueueTopic, jobs: cmd.ClaimedJobs) -> None:
    """What the records of claimed jobs say."""
    ordered = sorted(jobs.seqs) if topic.queue.order is not None else jobs.seqs
    if ordered is not jobs.seqs and ordered != jobs.seqs:
        whole = cmd.ClaimedJobs(ordered, (), 0)
        _fill(topic, whole)
        order = dict(zip(ordered, range(len(ordered)), strict=True))
        _pick_texts(whole, jobs, [order[seq] for seq in jobs.seqs])
        return
    for batch, places in topic.batches.places(jobs.seqs):
        view = blocks.BlockView(batch.block)
        before, count = len(jobs.data), len(places)
        if isinstance(places, range):
            start, end = places.start, places.stop
            jobs.times.extend(batch.times_at(start, end))
            jobs.data.extend(view.column(blocks.DATA, start, end) or ())
        else:
            jobs.times.extend(map(batch.ts_at, places))
            jobs.data.extend(view.texts_at(blocks.DATA, places) or ())
        if view.has_data_only and not view.number_bits and count == len(jobs.seqs):
            # By far the most frequent case: neighbours with nothing but data.
            break
        tags = view.texts_at(blocks.TAG, places)
        if tags is not None or jobs.tags is not None:
            jobs.tags = _longer(jobs.tags, before, tags, count)
        metas = view.texts_at(blocks.META, places)
        if metas is not None or jobs.metas is not None:
            jobs.metas = _longer(jobs.metas, before, metas, count)
        priorities = view.numbers_at(blocks.PRIORITY, places)
        if priorities is not None or jobs.priorities is not None:
            known = [0] * before if jobs.priorities is None else jobs.priorities
            known.extend([0] * count if priorities is None else priorities)
            jobs.priorities = known
        groups = view.texts_at(blocks.GROUP, places)
        if groups is not None or jobs.groups is not None:
            jobs.groups = _longer(jobs.groups, before, groups, count)
    assert len(jobs.data) == len(jobs.seqs), "what is handed out is live"


def _deal(whole: cmd.ClaimedJobs, jobs: Sequence[cmd.ClaimedJobs]) -> None:
    """Give each claimer what was read for all of them, one after the other."""
    end = 0
    for leased in jobs:
        start, end = end, end + len(leased.seqs)
        leased.times, leased.data = whole.times[start:end], whole.data[start:end]
        if whole.tags is not None and any(tags := whole.tags[start:end]):
            leased.tags = tags
        if whole.metas is not None and any(metas := whole.metas[start:end]):
            leased.metas = metas
        if whole.priorities is not None:
            leased.priorities = whole.priorities[start:end]
        if whole.groups is not None:
            leased.groups = whole.groups[start:end]


def _pick_texts(whole: cmd.ClaimedJobs, jobs: cmd.ClaimedJobs, places: Sequence[int]) -> None:
    """Give a claimer what was read for its jobs in another order."""
    jobs.times = [whole.times[place] for place in places]
    jobs.data = [whole.data[place] for place in places]
    if whole.tags is not None:
        jobs.tags = [whole.tags[place] for place in places]
    if whole.metas is not None:
        jobs.metas = [whole.metas[place] for place in places]
    if whole.priorities is not None:
        jobs.priorities = [whole.priorities[place] for place in places]
    if whole.groups is not None:
        jobs.groups = [whole.groups[place] for place in places]


def _longer(
    texts: list[bytes] | None, before: int, more: Sequence[bytes] | None, count: int
) -> list[bytes]:
    """A column of texts with those of further jobs; None for jobs of which none has any."""
    known = [b""] * before if texts is None else texts
    known.extend([b""] * count if more is None else more)
    return known


def _fates(topic: QueueTopic, seqs: Sequence[int]) -> list[cmd.JobFate]:
    """What most jobs do not have, of each of some leased jobs."""
    jobs = topic.queue.jobs
    found: dict[int, cmd.JobFate] = {}
    for batch, places in topic.batches.places(sorted(seqs)):
        view = blocks.BlockView(batch.block)
        rows = zip(
            map(batch.seq_at, places),
            view.texts_at(blocks.KEY, places) or repeat(b""),
            view.numbers_at(blocks.UPDATED_AT, places) or repeat(0),
            view.texts_at(blocks.FOLLOW, places) or repeat(b""),
            strict=False,
        )
        for seq, key, updated_at, follow in rows:
            known = jobs[seq]
            found[seq] = cmd.JobFate(key, known.error, updated_at, known.given_back, follow)
    return [found[seq] for seq in seqs]


def _why_none(topic: QueueTopic, stopped_by: cmd.NoneReason | None) -> cmd.NoneReason:
    queue = topic.queue
    if stopped_by is not None and (topic.ready or stopped_by == "paused"):
        return stopped_by
    if topic.ready and queue.order is not None and queue.order.has_blocked:
        return "group_busy"
    if queue.delayed:
        return "delayed"
    return "in_flight" if queue.leased else "empty"


def _retry_after(topic: QueueTopic, reason: cmd.NoneReason, now: int) -> int | None:
    """Milliseconds until time alone may yield a job; None when it never does."""
    queue = topic.queue
    if reason == "paused":
        return None
    if reason == "rate_limited":
        assert topic.config.claim_rate is not None
        return queue.rate_spent.refills_in(topic.config.claim_rate, now)
    due = queue.next_due()
    if reason == "max_in_flight":
        due = queue.next_lapse()
        expiry = topic.next_expiry()
        # A job in flight that is past its TTL frees its place. For one that cannot go now,
        # there is no point in coming back at once.
        if expiry is not None and expiry > now and (due is None or expiry < due):
            due = expiry
    return None if due is None else max(due - now, 0)


# -- selecting jobs --------------------------------------------------------------------------------


def _pick(topic: QueueTopic, wanted: int, now: int) -> tuple[list[int], int, list[int], bool]:
    """Claimable jobs, lowest seq first; the cursor behind them; those met on the way that were
    delivered too often; and whether jobs were left for their size, or not looked at."""
    queue = topic.queue
    if queue.order is not None:
        return _pick_ordered(topic, queue.order, wanted, now)
    reclaimed, exhausted = _reclaimed(topic, wanted, now) if queue.reclaim else ([], [])
    if reclaimed and reclaimed[-1] >= queue.cursor:
        # Timed jobs have no place before the fresh ones: both come in the order of their seqs.
        fresh, stop = _fresh(topic, wanted, now)
        picked = sorted(reclaimed + fresh)[:wanted]
        known = set(reclaimed)
        taken = [seq for seq in picked if seq not in known]
        more = len(taken) < len(fresh) or len(fresh) == wanted
    else:
        taken, stop = _fresh(topic, wanted - len(reclaimed), now)
        picked = reclaimed + taken
        more = len(picked) == wanted
    fitting = topic.fitting(picked, limits.CLAIM_BYTES_MAX) if len(picked) > 1 else len(picked)
    is_cut = fitting < len(picked)
    if is_cut:
        known = set(reclaimed)
        picked = picked[:fitting]
        taken = [seq for seq in picked if seq not in known]
        more = True
    # Every fresh job from the cursor on was taken, unless the demand was met first, or there were
    # so many to look at.
    if not more:
        return picked, stop or topic.head + 1, exhausted, is_cut or stop > 0
    return picked, taken[-1] + 1 if taken else queue.cursor, exhausted, is_cut


class _Low(Iterator[int]):
    """The claimable jobs that an order does not own, ascending; found when the first is asked for.

    Attributes:
        fresh: Those that were never handed out.
        fresh_taken: How many of these were asked for.
        stop: Where to go on with those, 0 for behind them.
        exhausted: Those met that were delivered too often.
    """

    def __init__(self, topic: QueueTopic, wanted: int, now: int) -> None:
        self._topic, self._wanted, self._now = topic, wanted, now
        self._seqs: Iterator[int] | None = None
        self.fresh: list[int] = []
        self.fresh_taken = 0
        self.stop = 0
        self.exhausted: list[int] = []

    def __next__(self) -> int:
        seqs = self._seqs
        if seqs is None:
            seqs = self._seqs = self._find()
        seq = next(seqs)
        if self.fresh_taken < len(self.fresh) and seq == self.fresh[self.fresh_taken]:
            self.fresh_taken += 1
        return seq

    def _find(self) -> Iterator[int]:
        topic, wanted = self._topic, self._wanted
        reclaimed: list[int] = []
        if topic.queue.reclaim:
            reclaimed, self.exhausted = _reclaimed(topic, wanted, self._now)
        self.fresh, self.stop = _fresh(topic, wanted, self._now)
        return iter(merge(reclaimed, self.fresh))

    def cursor_behind(self, picked: Container[int]) -> int:
        """Where the cursor is once some jobs are taken."""
        taken = sum(seq in picked for seq in self.fresh[: self.fresh_taken])
        if self._seqs is None or taken < len(self.fresh) or len(self.fresh) == self._wanted:
            return self.fresh[taken - 1] + 1 if taken else self._topic.queue.cursor
        return self.stop or self._topic.head + 1


def _pick_ordered(
    topic: QueueTopic, order: ClaimOrder, wanted: int, now: int
) -> tuple[list[int], int, list[int], bool]:
    """As `_pick`, where jobs have priorities or groups: in the order of the claim."""
    if order.built_to is not None:
        return [], topic.queue.cursor, [], True
    exhausted: list[int] = []
    low = _Low(topic, wanted, now)
    sift = Sift(_accepting(topic, exhausted, now), limits.RECLAIMED_SCANNED_MAX)
    picked = order.pick(wanted, low, sift, topic.ageing(now), now)
    fitting = _fitting(topic, picked)
    is_cut = fitting < len(picked) or (sift.is_over and len(picked) < wanted)
    picked = picked[:fitting]
    exhausted += low.exhausted
    is_cut = is_cut or (low.stop > 0 and len(picked) < wanted)
    return picked, low.cursor_behind(frozenset(picked)), exhausted, is_cut


def _accepting(topic: QueueTopic, exhausted: list[int], now: int) -> Callable[[int], bool]:
    """Whether a claim takes a claimable job that comes by itself; those that were delivered too
    often are noted, as many as a pass takes out."""
    is_gone, bounded = _passed_over(topic, now), _has_bounds(topic)
    before = topic.expired_before(now)

    def accepts(seq: int) -> bool:
        if is_gone(seq) or (before and _is_expired(topic, seq, before)):
            return False
        if bounded and _is_spent(topic, seq):
            if len(exhausted) < limits.DIVERTED_PER_PASS_MAX:
                exhausted.append(seq)
            return False
        return True

    return accepts


def _fitting(topic: QueueTopic, picked: list[int]) -> int:
    """How many of some jobs in any order, from the first on, one pass may hand out together."""
    ordered = sorted(picked)
    if len(picked) < 2 or topic.fitting(ordered, limits.CLAIM_BYTES_MAX) == len(picked):
        return len(picked)
    left = limits.CLAIM_BYTES_MAX
    for place, seq in enumerate(picked):
        left -= topic.size_of(seq)
        if left < 0 and place:
            return place
    return len(picked)


def _reclaimed(topic: QueueTopic, wanted: int, now: int) -> tuple[list[int], list[int]]:
    """Reclaimed jobs to hand out, lowest seq first, and those met that were delivered too often."""
    queue = topic.queue
    attributes = topic.attributes
    bounded = _has_bounds(topic)
    expired_before = topic.expired_before(now)
    if not bounded and not expired_before and attributes is None:
        return list(islice(queue.reclaim, wanted)), []
    is_gone = _passed_over(topic, now)
    taken: list[int] = []
    exhausted: list[int] = []
    for scanned, seq in enumerate(queue.reclaim):
        if len(taken) == wanted or len(exhausted) == limits.DIVERTED_PER_PASS_MAX:
            break
        if scanned >= limits.RECLAIMED_SCANNED_MAX:
            # Nearly all must end. Once they have, waiting claims are served.
            break
        if is_gone(seq) or (expired_before and _is_expired(topic, seq, expired_before)):
            continue
        if bounded and _is_spent(topic, seq):
            exhausted.append(seq)
        else:
            taken.append(seq)
    return taken, exhausted


def _has_bounds(topic: QueueTopic) -> bool:
    """Whether any job of a queue may be exhausted."""
    attributes = topic.attributes
    return topic.config.when_exhausted is not None and (
        topic.config.max_deliveries > 0 or (attributes is not None and attributes.has_bounds)
    )


def is_exhausted(topic: QueueTopic, seq: int) -> bool:
    """Whether a waiting job was delivered so often that a claim takes it out of rotation."""
    return _has_bounds(topic) and _is_spent(topic, seq)


def _is_spent(topic: QueueTopic, seq: int) -> bool:
    """The same in a queue where some may be."""
    job = topic.queue.jobs.get(seq)
    limit = topic.deliveries_max(seq) if job is not None else 0
    return job is not None and limit > 0 and job.deliveries - job.given_back >= limit


def _passed_over(topic: QueueTopic, now: int) -> Callable[[int], bool]:
    """Finds jobs that are to end and could not yet: time has not got to them, or there was no room
    where their copies go."""
    queue = topic.queue
    superseded = queue.keys.superseded if queue.keys is not None else ()
    if topic.attributes is None or not topic.attributes.has_expired(now):
        return superseded.__contains__
    return lambda seq: seq in superseded or topic.is_past_its_own(seq, now)


def _is_expired(topic: Topic, seq: int, expired_before: int) -> bool:
    batch = topic.batch_of(seq)
    return batch is not None and batch.ts_at(batch.index_of(seq)) < expired_before


def _fresh(
    topic: QueueTopic, wanted: int, now: int, looked_max: int | None = None
) -> tuple[list[int], int]:
    """Jobs that were never handed out, lowest seq first. Where some are passed over, so many are
    looked at, by default `FRESH_SCANNED_MAX`; then the seq where to go on comes second, else 0."""
    queue = topic.queue
    if wanted <= 0:
        return [], 0
    expired_before = topic.expired_before(now) if topic.config.ttl_ms else 0
    if topic.attributes is None and not queue.held and queue.entered_to < queue.cursor:
        return topic.batches.live_seqs(queue.cursor, wanted, expired_before), 0
    left = limits.FRESH_SCANNED_MAX if looked_max is None else looked_max
    is_gone, placed = _passed_over(topic, now), queue.placed
    taken: list[int] = []
    start = queue.cursor
    while len(taken) < wanted and start <= topic.head:
        start = queue.timed_runs.behind(start)
        for batch in topic.batches_from(start):
            if batch.last_seq < start:
                continue
            # A run of timed jobs is passed over in one step, however long it is.
            past = batch.first_seq if batch.is_plain else queue.timed_runs.behind(batch.first_seq)
            if past > batch.last_seq:
                start = past
                break
            live = batch.live_seqs(start)[:left]
            left -= len(live)
            seqs = untimed(batch, live)
            taken.extend(
                seq
                for seq in seqs
                if seq not in placed
                and not is_gone(seq)
                and not (expired_before and batch.ts_at(batch.index_of(seq)) < expired_before)
            )
            if len(taken) >= wanted:
                return taken[:wanted], 0
            if not left:
                return taken, live[-1] + 1
        else:
            break
    return taken, 0


def share_evenly(
    demands: Sequence[int], seqs: list[int], *, is_ordered: bool = False
) -> list[list[int]]:
    """Deal jobs round-robin in the claimers' order, skipping the satisfied.

    Args:
        demands: How many each claimer wants.
        seqs: Jobs in the order of selection; at most the sum of the demands.
        is_ordered: That order means something.

    Returns:
        Each claimer's jobs, ascending or in the order of selection.
    """
    if len(demands) == 1:
        return [seqs if is_ordered else sorted(seqs)]
    shares: list[list[int]] = [[] for _ in demands]
    dealt = 0
    while dealt < len(seqs):
        hungry = [i for i, demand in enumerate(demands) if len(shares[i]) < demand]
        assert hungry, "more jobs were picked than were wanted"
        # Deal whole rounds at once, as many as the least hungry claimer can still take.
        rounds = min(demands[i] - len(shares[i]) for i in hungry)
        for place, i in enumerate(hungry):
            shares[i].extend(islice(seqs, dealt + place, dealt + rounds * len(hungry), len(hungry)))
        dealt += rounds * len(hungry)
    if not is_ordered:
        for share in shares:
            share.sort()
    return shares


def share_in_turn(
    demands: Sequence[int], seqs: list[int], *, is_ordered: bool = False
) -> list[list[int]]:
    """Deal jobs to one claimer after the other, as many as it wants.

    Args:
        demands: How many each claimer wants.
        seqs: Jobs in the order of selection.
        is_ordered: That order means something.

    Returns:
        Each claimer's jobs, ascending or in the order of selection.
    """
    shares = []
    dealt = 0
    for demand in demands:
        some = seqs[dealt : dealt + demand]
        shares.append(some if is_ordered else sorted(some))
        dealt += demand
    return shares


class Ahead(NamedTuple):
    """How many ready jobs a claim takes before one.

    Attributes:
        is_exact: Whether all of them were counted.
        is_kept_back: The job's group keeps it back: no claim takes it now, however much it wants.
    """

    jobs: int
    is_exact: bool
    is_kept_back: bool = False


def is_ending(topic: QueueTopic, seq: int, now: int) -> bool:
    """Whether a waiting job is to end: it is past its time to live, or superseded. No claim takes
    it, whether time has got to it or not."""
    before = topic.expired_before(now)
    return _passed_over(topic, now)(seq) or bool(before and _is_expired(topic, seq, before))


def ready_ahead(topic: QueueTopic, seq: int, now: int) -> Ahead:
    """How many jobs a claim takes before a ready one. Of jobs that may be passed over, the first
    `AHEAD_SCANNED_MAX` are looked at."""
    queue = topic.queue
    if queue.order is not None:
        return _ahead_in_order(topic, queue.order, seq, now)
    expired_before = topic.expired_before(now)
    rank = queue.reclaim.bisect_left(seq)
    if topic.attributes is None and not expired_before and not _has_bounds(topic):
        back = rank
    else:
        is_gone = _passed_over(topic, now)
        seen = [*islice(queue.reclaim, min(rank, AHEAD_SCANNED_MAX))]
        back = rank - len(seen)
        for other in seen:
            is_late = expired_before and _is_expired(topic, other, expired_before)
            back += not (is_gone(other) or is_late or is_exhausted(topic, other))
    is_exact = rank <= AHEAD_SCANNED_MAX or back == rank
    if seq <= queue.cursor:
        return Ahead(back, is_exact)
    are_fresh = not queue.held and queue.entered_to < queue.cursor
    if topic.attributes is None and are_fresh and not expired_before:
        return Ahead(back + topic.batches.count_live(queue.cursor, seq), is_exact)
    fresh, stop = _fresh(topic, AHEAD_SCANNED_MAX, now, AHEAD_SCANNED_MAX)
    reaches = stop >= seq or bool(fresh and fresh[-1] >= seq)
    is_whole = not stop and len(fresh) < AHEAD_SCANNED_MAX
    return Ahead(back + bisect_left(fresh, seq), is_exact and (reaches or is_whole))


def _ahead_in_order(topic: QueueTopic, order: ClaimOrder, seq: int, now: int) -> Ahead:
    """The same where jobs have priorities or groups: by the beginning of a claim."""
    low = _Low(topic, AHEAD_SCANNED_MAX, now)
    sift = Sift(_accepting(topic, [], now), AHEAD_SCANNED_MAX)
    picked = order.pick(AHEAD_SCANNED_MAX, low, sift, topic.ageing(now), now)
    if seq in picked:
        return Ahead(picked.index(seq), True)
    is_whole = len(picked) < AHEAD_SCANNED_MAX and not sift.is_over and not low.stop
    return Ahead(len(picked), False, is_whole and not order.is_building)


def _oldest_ready(topic: QueueTopic, now: int) -> int:
    """The lowest seq of a claimable job, 0 for none."""
    queue = topic.queue
    if queue.order is None:
        seqs = [*islice(queue.reclaim, 1), *_fresh(topic, 1, now, limits.READY_SCANNED_MAX)[0]]
        return min(seqs, default=0)
    is_gone, before = _passed_over(topic, now), topic.expired_before(now)
    for seq in topic.batches.live_seqs(1, limits.READY_SCANNED_MAX, before):
        if state_of(topic, seq) == "ready" and not is_gone(seq):
            return seq
    return 0


def oldest_ready_ms(topic: QueueTopic, now: int) -> int:
    """How long the oldest claimable job has been waiting, in ms; 0 when there is none, or none
    among the first `READY_SCANNED_MAX`: all of those are to end."""
    if not topic.ready:
        return 0
    seq = _oldest_ready(topic, now)
    if not seq:
        return 0
    batch = topic.batch_of(seq)
    assert batch is not None
    index = batch.index_of(seq)
    ts = batch.ts_at(index)
    return max(now - max(ts, due_at(blocks.BlockView(batch.block), index, ts)), 0)
