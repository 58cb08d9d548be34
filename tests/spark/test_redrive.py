"""Moving dead letters back: only those that were chosen, each once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from logqueue.client import Client, NewRecord
from logqueue.pipeline.engines.spark.copies import redrive
from logqueue.pipeline.engines.spark.copies.redrive import run_redrive
from logqueue.pipeline.errors import PipelineError
from logqueue.shapes import Record
from tests.spark.sinking import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    yield from Target.opened(tmp_path_factory.mktemp("redrive"))


def bury(client: Client, queue: str, count: int, *, tag: str = "t", error: str = "boom") -> None:
    """Jobs that are rejected."""
    client.append(queue, [NewRecord({"n": n}, tag=tag) for n in range(count)], create=True)
    jobs = client.claim(queue, max=count, node="w")
    client.reject(queue, [job.seq for job in jobs.jobs], node="w", error=error)


def seqs(client: Client, topic: str) -> list[int]:
    return [record.seq for record in client.read(topic) if isinstance(record, Record)]


@pytest.fixture
def queue(target: Target, request: pytest.FixtureRequest) -> str:
    """A queue with ten dead letters of two kinds in `<queue>.dead`."""
    name = str(request.node.name).replace("_", "-")
    with target.client() as client:
        client.put_topic(name, type="queue", dead_letter=f"{name}.dead")
        bury(client, name, 6, tag="red", error="no heat")
        bury(client, name, 4, tag="blue", error="no water")
    return name


def test_only_what_was_chosen_moves_and_a_repeat_does_nothing(
    spark: SparkSession, target: Target, queue: str
) -> None:
    def move(**changes: Any) -> dict[str, Any]:
        given = {
            "where": "error = 'no heat' AND get_json_object(data, '$.n') >= 2 AND `from` = source"
        }
        return run_redrive(spark, target.url, f"{queue}.dead", "r1", **(given | changes))

    dry = move(dry_run=True)
    assert (dry["status"], dry["selected"], dry["redriven"], dry["remaining"]) == (
        "dry_run", 4, 4, 10,
    )  # fmt: skip
    with target.client() as client:
        assert len(seqs(client, f"{queue}.dead")) == 10
        assert client.topic(queue).count == 0
    done = move()
    assert (done["status"], done["selected"], done["redriven"]) == ("done", 4, 4)
    assert (done["skipped"], done["remaining"], done["targets"]) == (0, 6, [queue])
    with target.client() as client:
        assert seqs(client, f"{queue}.dead") == [1, 2, 7, 8, 9, 10]
        back = client.claim(queue, max=10, node="w").jobs
        assert [job.data for job in back] == [{"n": n} for n in (2, 3, 4, 5)]
        # They die again, and fit the condition again; the same write id does not care.
        client.reject(queue, [job.seq for job in back], node="w", error="no heat")
    again = move()
    assert (again["status"], again["redriven"], again["remaining"]) == ("already", 0, 10)
    with pytest.raises(PipelineError, match="other content or settings"):
        move(where="error = 'no water'")
    with target.client() as client:
        assert client.topic(queue).count == 0


def test_a_run_that_broke_off_takes_what_is_left_of_its_choice(
    spark: SparkSession, target: Target, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "MOVED_AT_ONCE", 2)

    def break_off(text: str, share: float | None) -> None:
        if text.startswith("4 of 7"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_redrive(spark, target.url, f"{queue}.dead", "r2", limit=7, note=break_off)
    with target.client() as client:
        assert seqs(client, f"{queue}.dead") == [5, 6, 7, 8, 9, 10]
        bury(client, queue, 4)
    done = run_redrive(spark, target.url, f"{queue}.dead", "r2", limit=7)
    assert (done["selected"], done["redriven"]) == (3, 3)
    with target.client() as client:
        assert seqs(client, f"{queue}.dead")[:3] == [8, 9, 10]


def test_another_target_and_letters_that_can_not_move(
    spark: SparkSession, target: Target, queue: str
) -> None:
    with target.client() as client:
        client.append(f"{queue}.dead", ["no dead letter"], create=True)
        client.put_topic("elsewhere", type="queue")
    done = run_redrive(
        spark, target.url, f"{queue}.dead", "r3", where="tag = 'blue'", to_topic="elsewhere"
    )
    assert (done["redriven"], done["targets"]) == (4, ["elsewhere"])
    rest = run_redrive(spark, target.url, f"{queue}.dead", "r4")
    assert (rest["selected"], rest["redriven"], rest["skipped"], rest["remaining"]) == (7, 6, 1, 1)
    none = run_redrive(spark, target.url, f"{queue}.dead", "r5", where="reason = 'rejected'")
    assert (none["status"], none["selected"], none["redriven"]) == ("done", 0, 0)


def test_refusals_say_what_to_do(spark: SparkSession, target: Target, queue: str) -> None:
    for changes, says in (
        ({"where": "nosuch = 1"}, "invalid condition 'nosuch = 1'.*columns are seq"),
        ({"limit": 0}, "limit is 0"),
        ({"to_topic": "nowhere"}, "were not moved"),
        ({"dead_topic": "nowhere"}, "nowhere"),
        ({"write_id": "a b"}, "writeId is 'a b'"),
        ({"url": "nonsense"}, "url or token"),
    ):
        given: dict[str, Any] = {
            "url": target.url,
            "dead_topic": f"{queue}.dead",
            "write_id": "refused",
        }
        with pytest.raises(PipelineError, match=says):
            run_redrive(spark, **(given | changes))
