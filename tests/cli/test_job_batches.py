"""`logqueue batches`, and the flags of `append` for jobs that belong together."""

from __future__ import annotations

import json

from logqueue.client import Client
from tests.cli.conftest import Cli


def test_a_batch_from_append_to_its_end(client: Client, topic: str, cli: Cli) -> None:
    client.ensure_topic(topic, type="queue")
    client.open_batch(topic)
    then = json.dumps([{"topic": topic, "record": {"data": 2}}])
    written = cli("append", topic, "--batch", topic, "--then", then, "--data", "1")
    assert written.status == 0, written.err
    (job,) = client.claim(topic).jobs
    assert (job.batch, [step.record for step in job.then]) == (topic, [{"data": 2}])
    (row,) = cli("batches", "list", "--prefix", topic).out.splitlines()[1:]
    assert row.split() == [topic, "open", "1", "0", "0", "1"]
    assert cli("batches", "delete", topic).status != 0
    assert "closed" in cli("batches", "close", topic).out
    client.ack(topic, job)
    (found,) = cli("batches", "show", topic, "--wait", "20s", "--json").lines
    assert (found["state"], found["done"]) == ("ended", 1)
    assert "ended" in cli("batches", "show", topic).out
    assert cli("batches", "delete", topic).status == 0
    assert cli("batches", "delete", topic).status == 3


def test_steps_must_be_steps(topic: str, cli: Cli) -> None:
    for then in ("no JSON", "{}", '[{"topic": "t"}]', '[{"topic": "t", "record": {"x": 1}}]'):
        assert cli("append", topic, "--then", then, "--data", "1").status == 2
