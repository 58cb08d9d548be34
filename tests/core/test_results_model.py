"""What a queue keeps of ended jobs, against a naive model, through restarts and kills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from logqueue.core.job_status import STATE_OF, job_status
from logqueue.model.config import ResultOptions
from tests.core.results_model import ResultsModel
from tests.core.test_lifecycle_model import (
    CHANGES,
    NODES,
    PICKS,
    LifecycleMachine,
    eager_tidying,
)
from tests.effort import IS_THOROUGH, scaled

__all__ = ["eager_tidying"]

OPTIONS = st.fixed_dictionaries(
    {
        "keep_ms": st.sampled_from([60, 400, 10_000]),
        "max_bytes": st.sampled_from([900, 1600, 10**6]),
    }
)
RESULT = st.sampled_from([b"", b"", b"1", b'"%s"' % (b"x" * 300), b'{"a":[1,2]}'])


class ResultsMachine(LifecycleMachine):
    """The machine of all that can become of a job, on a queue that keeps it."""

    model_of = ResultsModel
    own_config: Mapping[str, Any] = {"results": {"keep_ms": 400, "max_bytes": 1600}}
    model: ResultsModel

    @invariant()
    def same_ends(self) -> None:
        if not hasattr(self, "world"):
            return
        self.tick()
        now, topic = self.world.now, self.world.queue("q")
        for seq in range(-1, topic.head + 3):
            status = job_status(topic, seq, now)
            if not 0 < seq <= topic.head:
                assert status is None
                continue
            assert status is not None
            assert status.has_ended == (seq not in self.model.jobs)
            wanted = self.model.ended.get(seq)
            if wanted is None:
                assert status.ended is None, (seq, status)
                continue
            found = status.ended
            assert found is not None, (seq, wanted)
            assert tuple(wanted) == (
                found.outcome, found.at, found.node, found.reason, found.result, found.error,
            )  # fmt: skip
            assert found.outcome in STATE_OF

    @rule(node=NODES, picks=PICKS, results=st.lists(RESULT, min_size=4, max_size=4))
    def ack(self, node: str, picks: list[int], results: list[bytes]) -> None:
        seqs, mine = self.aim(node, picks)
        some = results[: len(seqs)]
        self.model.node = node
        self.model.results = dict(reversed([*zip(seqs, some, strict=True)]))
        assert self.world.ack(*seqs, node=node, results=some)[0] == len(mine)
        self.model.ack(mine)

    @rule(node=NODES, picks=PICKS, error=st.sampled_from([None, "a"]))
    def reject(self, node: str, picks: list[int], error: str | None) -> None:
        self.model.node, self.model.rejected_with = node, error
        super().reject(node, picks, error)
        self.model.rejected_with = None

    @rule(changes=CHANGES, results=st.none() | OPTIONS)
    def configure(self, changes: dict[str, Any], results: dict[str, int] | None) -> None:
        self.tick()
        options = None if results is None else ResultOptions(**results)
        self.model.configure(options)
        super().configure({**changes, "results": results})


class TestResults(ResultsMachine.TestCase):  # type: ignore[misc,valid-type]
    """Runs the machine."""

    settings = settings(
        max_examples=scaled(25, 300),
        stateful_step_count=50,
        deadline=None,
        derandomize=not IS_THOROUGH,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
