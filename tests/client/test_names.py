"""The names that users import: complete, lazy, the same on both clients, and typed."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import logqueue
from logqueue import client as clients
from logqueue import errors, shapes
from logqueue.client import AsyncClient, Client, ConfigFields
from logqueue.client.asynchronous import AwaitedCalls
from logqueue.client.blocking import BlockingCalls
from logqueue.model.config import TopicOptions
from tests.house import ROOT

SAMPLE = """
import logqueue
from logqueue.shapes import Job

def blocking(client: logqueue.Client, job: Job) -> None:
    reveal_type(client.claim("q", max=5).jobs)
    reveal_type(client.ack("q", [job, 7]))
    reveal_type(client.append("q", [{"a": 1}]).seqs)
    reveal_type(client.topic("q").queue)
    reveal_type([*client.topics(prefix="a")])
    reveal_type([*client.read("q", follow=True)])
    reveal_type(next(client.work("q")))
    reveal_type(next(client.watch({"a": 5})))
    reveal_type(client.put_topic("q", type="queue", dead_letter=None).created)
    client.put_topic("q", type="stack")
    client.put_topic("q", leese_ms=5)
    client.claim("q", 5)
    client.ack("q", "7")
    client.append("q", 5)

async def awaiting(client: logqueue.AsyncClient) -> None:
    reveal_type(await client.claim("q"))
    async for item in client.work("q"):
        reveal_type(item)
    reveal_type(logqueue.LostReply("x").had_no_effect)
"""

REVEALED = """\
list[logqueue.shapes.queues.Job]
logqueue.client.settling.Settled
list[int] | None
logqueue.shapes.topics.QueueCounters | None
list[logqueue.shapes.topics.TopicEntry]
list[logqueue.shapes.records.Record | logqueue.shapes.records.Tombstone]
logqueue.shapes.queues.Job | logqueue.client.following.Interrupted
logqueue.shapes.streams.Records | logqueue.shapes.streams.Gap | \
logqueue.shapes.streams.CaughtUp | logqueue.shapes.streams.TopicDeleted
bool
logqueue.shapes.queues.Claimed
logqueue.shapes.queues.Job | logqueue.client.following.Interrupted
bool
""".splitlines()

REFUSED = ["type=", "leese_ms", 'claim("q", 5)', 'ack("q", "7")', 'append("q", 5)']


def test_a_type_checker_knows_every_result_and_refuses_wrong_arguments(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text(SAMPLE)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert re.findall(r'Revealed type is "(.+)"', checked.stdout) == REVEALED, checked.stdout
    places = sorted({int(at) for at in re.findall(r"py:(\d+): error", checked.stdout)})
    wrong = [SAMPLE.splitlines()[at - 1] for at in places]
    assert len(wrong) == len(REFUSED), checked.stdout
    assert all(part in line for part, line in zip(REFUSED, wrong, strict=True)), wrong


def test_importing_the_package_loads_nothing_else() -> None:
    ask = (
        "import sys, logqueue\n"
        "loaded = {'httpx', 'msgspec', 'asyncio', 'logqueue.client', 'logqueue.errors'}\n"
        "sys.exit(str(loaded & {*sys.modules}) if loaded & {*sys.modules} else 0)"
    )
    subprocess.run([sys.executable, "-c", ask], cwd=ROOT, check=True)


def test_every_public_name_loads() -> None:
    for name in dir(logqueue):
        getattr(logqueue, name)
    assert logqueue.Client is Client and logqueue.TopicNotFound is errors.TopicNotFound
    with pytest.raises(AttributeError, match="no attribute 'Clint'"):
        _ = logqueue.Clint  # type: ignore[attr-defined]


def test_type_checkers_are_told_the_same_names() -> None:
    tree = ast.parse(Path(logqueue.__file__).read_text())
    told = {
        (node.module, alias.asname)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    assert told == {(home, name) for home, names in logqueue._HOMES.items() for name in names}


def test_every_error_has_a_public_name() -> None:
    public = set(dir(logqueue))
    kinds = [*vars(errors).values(), *map(clients.__dict__.get, clients.__all__)]
    missing = {
        kind.__name__
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, Exception) and kind.__name__ not in public
    }
    assert not missing


def test_both_clients_have_the_same_methods() -> None:
    for blocking, awaiting in ((Client, AsyncClient), (BlockingCalls, AwaitedCalls)):
        names = {name for name in vars(blocking) if not name.startswith("_")}
        assert names == {name for name in vars(awaiting) if not name.startswith("_")}
    for name in vars(Client):
        if name.startswith("_"):
            continue
        one, other = getattr(Client, name), getattr(AsyncClient, name)
        assert inspect.signature(one).parameters == inspect.signature(other).parameters, name
        assert one.__doc__ and one.__doc__ == other.__doc__, name
        assert one.__name__ == name, "a method is named after the call it makes"


def test_config_fields_are_those_that_replies_show() -> None:
    assert set(ConfigFields.__annotations__) == set(shapes.TopicConfig.__struct_fields__)
    assert set(TopicOptions.__struct_fields__) <= set(ConfigFields.__annotations__)


def test_shapes_say_what_is_optional() -> None:
    for name in shapes.__all__:
        kind = getattr(shapes, name)
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            continue
        config = kind.__struct_config__
        assert config.frozen and not config.forbid_unknown_fields, name
        for told in msgspec.structs.fields(kind):
            is_wire_name = told.encode_name in (told.name, f"${told.name}", "claimed", "in", "from")
            assert is_wire_name, f"{name}.{told.name}"
