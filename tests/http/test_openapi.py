"""The OpenAPI document: valid, complete, and true of the real server."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import httpx
import jsonschema_rs
import msgspec
import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st

from logqueue import __version__, errors, shapes
from logqueue.api.openapi.bounds import BOUNDS, ROUTER_NAME, TOPIC_NAME
from logqueue.api.openapi.document import errors_of, path_of
from logqueue.api.openapi.refusals import EXAMPLES
from logqueue.api.openapi.schemas import body_name
from logqueue.api.operations import BY_NAME, OPERATIONS, KeyPolicy, Kind, Operation
from logqueue.errors import InvalidRequest, every_error
from logqueue.model.config import is_topic_name, require_router_name
from tests.http.api import Api, query_text
from tests.http.described import PATH, Judge, references, resolved
from tests.http.expect import Json, ok, plain_ok, refused
from tests.http.process import ServerProcess
from tests.http.sse import Frame

QUEUE, COPY, ROUTER = "transcode", "transcode.audit", "audit"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with keys."""
    directory = tmp_path_factory.mktemp("described") / "data"
    process = ServerProcess(directory, settings={"API_KEYS": "full,deleter:delete:none-"}).start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def api(guarded: ServerProcess) -> Iterator[Api]:
    """A client with a key for everything."""
    with Api(guarded.base_url, key="full") as client:
        yield client


@pytest.fixture(scope="module")
def document(api: Api) -> Json:
    """The document as served."""
    return plain_ok(api.send("GET", PATH))


@pytest.fixture(scope="module")
def judge(document: Json) -> Judge:
    """Strict judgement by it."""
    return Judge(document)


# -- how it is served ----------------------------------------------------------------------------


def test_it_takes_a_key_and_no_scope(guarded: ServerProcess, api: Api) -> None:
    served = api.send("GET", PATH)
    with Api(guarded.base_url) as anonymous:
        refused(anonymous.send("GET", PATH), 401, "unauthorized")
        refused(anonymous.send("GET", f"{PATH}?token=full"), 401, "unauthorized")
    with Api(guarded.base_url, key="deleter") as narrow:
        assert narrow.send("GET", PATH).content == served.content
    wrong = api.send("POST", PATH)
    refused(wrong, 405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET, HEAD"
    assert api.send("HEAD", PATH).headers["content-length"] == str(len(served.content))


def test_what_it_is_about(document: Json) -> None:
    assert document["info"]["version"] == __version__
    assert document["info"]["title"] == "logqueue"
    assert document["servers"] == [{"url": "/"}]


# -- valid and whole -----------------------------------------------------------------------------


def test_it_is_valid_openapi(document: Json) -> None:
    assert document["openapi"].startswith("3.1.")
    schemathesis.openapi.from_dict(copy.deepcopy(document)).validate()
    for name, schema in document["components"]["schemas"].items():
        jsonschema_rs.meta.validate(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
        )
        assert schema["title"] == name


def test_the_validator_bites(document: Json) -> None:
    broken = copy.deepcopy(document)
    del broken["paths"]["/v0/topics"]["get"]["responses"]["200"]["description"]
    with pytest.raises(jsonschema_rs.ValidationError):
        schemathesis.openapi.from_dict(broken).validate()


def test_every_reference_leads_somewhere(document: Json) -> None:
    found = references(document)
    assert found
    for reference in found:
        resolved(document, reference)
    used = set(found)
    unused = [
        f"#/components/schemas/{name}"
        for name in document["components"]["schemas"]
        if f"#/components/schemas/{name}" not in used
    ]
    assert not unused


COMPONENTS = {
    name
    for line in (
        "AckBody Acked Appended BorrowedRecords Cancelled CaughtUp ClaimBody ClaimRate",
        "ClaimRateBody ClaimRatePatch Claimed CommitBody Committed CommittedRange DeleteBody",
        "DiffBody Drift ErrorBody ErrorReply ExtendBody Extended Gap Health Job JobBody",
        "JobEvent JobFrame JobHistory JobPage JobView JobsBody NackBody Nacked Page PartBody",
        "Paused Producer PurgeBody Purged QueueCounters Ready Record Records RecordsDeleted",
        "RedriveBody Redriven RejectBody Rejected ReleaseBody Released RetryBackoff",
        "RetryBackoffBody RetryBackoffPatch Router RouterBody RouterDropped RouterEntry",
        "RouterPage Segment SegmentPage SegmentRouterFacts SegmentTopic SegmentTopicFacts",
        "SeqAt StageBody Staged StagedEpochs StartBody StreamError Tombstone TopicConfig",
        "TopicConfigBody TopicConfigPatch TopicDeleted TopicDropped TopicEnsured TopicEntry",
        "TopicPage TopicPut TopicState WatchBody WatchSession WatchedTopic WorkerList",
        "WorkerView WriteResult",
    )
    for name in line.split()
}


def test_components_keep_their_names(document: Json) -> None:
    """Users have code generated from them. Add new names; never take one away."""
    assert COMPONENTS - document["components"]["schemas"].keys() == set()


def test_every_route_is_in_it_and_nothing_else(document: Json) -> None:
    described = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert described == {(row.method, path_of(row.pattern)) for row in OPERATIONS}


def test_every_error_is_in_it(document: Json) -> None:
    """A new error needs an example in logqueue/api/openapi/refusals.py."""
    kinds = [kind for kind in every_error() if kind.__module__ == errors.__name__]
    assert {type(error) for error in EXAMPLES} == {*kinds}
    assert len({type(error) for error in EXAMPLES}) == len(EXAMPLES)
    examples = document["components"]["examples"]
    for kind in kinds:
        envelope = msgspec.convert(examples[kind.__name__]["value"], shapes.ErrorReply)
        assert envelope.error.code == kind.code
        (media,) = document["components"]["responses"][kind.__name__]["content"].values()
        codes = media["schema"]["allOf"][1]["properties"]["error"]["properties"]["code"]["enum"]
        assert codes == [kind.code]


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.name)
def test_each_operation_tells_its_scopes_and_errors(document: Json, row: Operation) -> None:
    operation = document["paths"][path_of(row.pattern)][row.method.lower()]
    told: dict[str, list[str]] = {}
    for way in operation["security"]:
        told.update(way)
    scopes = {scope.lower() for scope in (row.scope.name or "").split("|") if scope}
    assert set(told["key"]) == scopes
    assert ("token" in told) == (row.kind is Kind.STREAM)
    assert ({} in operation["security"]) == (row.key is KeyPolicy.PROBE)
    codes: dict[str, set[str]] = {}
    for status, response in operation["responses"].items():
        if "$ref" in response:
            (media,) = resolved(document, response["$ref"])["content"].values()
            error = media["schema"]["allOf"][1]["properties"]["error"]
            codes[status] = set(error["properties"]["code"]["enum"])
            assert set(media["examples"]) <= set(document["components"]["examples"])
    wanted: dict[str, set[str]] = {}
    for kind in errors_of(row):
        wanted.setdefault(str(kind.status), set()).add(kind.code)
    assert codes == wanted


# -- the types -----------------------------------------------------------------------------------


def test_bounds_are_of_members_that_exist(document: Json) -> None:
    schemas = document["components"]["schemas"]
    for (kind, member), bound in BOUNDS.items():
        schema = schemas[body_name(kind.__name__)]["properties"][member]
        assert any(bound.items() <= form.items() for form in (schema, *schema.get("anyOf", ())))


def test_numbers_have_their_ranges(document: Json) -> None:
    claim = document["components"]["schemas"]["ClaimBody"]["properties"]
    assert (claim["max"]["minimum"], claim["max"]["maximum"]) == (0, 2**32 - 1)
    lease, _ = claim["lease_ms"]["anyOf"]
    assert (lease["minimum"], lease["maximum"]) == (0, 2**64 - 1)


def test_a_patch_may_say_less_than_what_it_patches(document: Json) -> None:
    methods = document["paths"]["/v0/topics/{topic}"]

    def takes(method: str, body: Json, media_type: str = "application/json") -> bool:
        schema = methods[method]["requestBody"]["content"][media_type]["schema"]
        return jsonschema_rs.is_valid({**schema, "components": document["components"]}, body)

    patches: list[Json] = [{"ttl_ms": None}, {"retry_backoff": {"step_ms": 5}}, {"claim_rate": {}}]
    for body in patches:
        assert takes("patch", body, "application/merge-patch+json")
        assert takes("patch", body)
        assert not takes("put", body)
    assert not takes("patch", {"ttl_ms": -1})
    assert not takes("patch", {"retry_backoff": {"jitter": 2}})
    assert "application/merge-patch+json" not in methods["put"]["requestBody"]["content"]


def test_rules_between_members(document: Json) -> None:
    def takes(component: str, body: Json) -> bool:
        schema = {"$ref": f"#/components/schemas/{component}"}
        return jsonschema_rs.is_valid({**schema, "components": document["components"]}, body)

    for wanted in ({"on_exhausted": "dead_letter"}, {"on_expire": "dead_letter"}):
        assert takes("TopicConfigBody", {**wanted, "dead_letter": "failed"})
        assert not takes("TopicConfigBody", wanted)
    assert takes("JobBody", {"data": 1, "delay_ms": 1, "not_before": None})
    assert not takes("JobBody", {"data": 1, "delay_ms": 1, "not_before": 1})


@settings(derandomize=True, max_examples=200)
@given(st.from_regex(TOPIC_NAME, fullmatch=True), st.from_regex(ROUTER_NAME, fullmatch=True))
def test_names_that_fit_the_pattern_are_names(topic: str, router: str) -> None:
    # Python's "$" also matches before a line break at the end, which that of JSON Schema does not.
    assert is_topic_name(topic.removesuffix("\n"))
    require_router_name(router.removesuffix("\n"))


@pytest.mark.parametrize("name", ["", "-a", ".a", "a/b", "a>b", "ä", "a b", "a" * 256])
def test_what_is_no_topic_name_does_not_fit(name: str) -> None:
    assert not is_topic_name(name)
    assert not jsonschema_rs.is_valid({"pattern": TOPIC_NAME}, name)


@pytest.mark.parametrize("name", ["", ">a", "a/b", "a b", "a" * 256])
def test_what_is_no_router_name_does_not_fit(name: str) -> None:
    with pytest.raises(InvalidRequest):
        require_router_name(name)
    assert not jsonschema_rs.is_valid({"pattern": ROUTER_NAME}, name)


# -- examples ------------------------------------------------------------------------------------

SHAPED = [row for row in OPERATIONS if row.reply is not None]
ELSEWHERE = ("promote", "hand_over", "get_operation", "stop_operation")
"""They need several servers, or the id of an operation: see tests/replica/test_failover.py and
tests/server/test_background.py."""

STREAMED = [row for row in OPERATIONS if row.frames]


def named(row: Operation) -> str:
    """A row's name, for test ids."""
    return row.name


@pytest.mark.parametrize("row", SHAPED, ids=named)
def test_example_replies_have_their_shape(judge: Judge, row: Operation) -> None:
    assert row.reply is not None
    msgspec.json.decode(msgspec.json.encode(row.example), type=row.reply)
    judge.require(row.reply.__name__, row.example)


@pytest.mark.parametrize("row", STREAMED, ids=named)
def test_example_streams_have_their_shapes(judge: Judge, row: Operation) -> None:
    text: str = row.content["text/event-stream"]["example"]
    assert text.endswith("\n\n")
    seen = set()
    for block in text.removesuffix("\n\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if "event" in fields:
            seen.add(fields["event"])
            judge.require(row.frames[fields["event"]].__name__, json.loads(fields["data"]))
    assert seen


@pytest.mark.parametrize("row", [row for row in OPERATIONS if row.body is not None], ids=named)
def test_example_bodies_fit_their_schema(document: Json, row: Operation) -> None:
    operation = document["paths"][path_of(row.pattern)][row.method.lower()]
    media = operation["requestBody"]["content"]["application/json"]
    jsonschema_rs.validate(
        {**media["schema"], "components": document["components"]}, media["example"]
    )
    assert set(media["example"]) <= {
        field.encode_name for field in msgspec.structs.fields(row.body or row)
    }


# -- the real server -----------------------------------------------------------------------------


@pytest.fixture
def stage(api: Api) -> Api:
    """A server that holds what the examples speak of."""
    for topic in (QUEUE, COPY):
        ok(api.delete_topic(topic))
    ok(api.put(QUEUE, type="queue", max_deliveries=5, dead_letter="transcode.failed"), 201)
    ok(api.put_router(ROUTER, source=QUEUE, dest=COPY, filter="hd*"), 201)
    api.append_many(
        QUEUE,
        [
            {"data": {"src": "a.mov"}, "tag": "hd", "meta": {"trace": "z9"}},
            {"data": {"src": "b.mov"}, "key": "user-17", "delay_ms": 60_000},
        ],
    )
    ok(api.json("POST", "/v0/producers/etl/epochs/7/stage", BY_NAME["stage_chunk"].asks))
    api.json("PUT", "/v0/schedules/nightly", BY_NAME["put_schedule"].asks)
    api.send("DELETE", "/v0/batches/import-17")
    api.json("POST", "/v0/batches", BY_NAME["open_batch"].asks)
    return api


def example_path(document: Json, row: Operation) -> str:
    """The path of an operation with the examples of what stands in it."""
    path = path_of(row.pattern)
    for parameter in document["paths"][path][row.method.lower()].get("parameters", []):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(parameter["example"]))
    return path


def send_example(document: Json, api: Api, row: Operation) -> httpx.Response:
    """Send what the document gives as an example."""
    operation = document["paths"][path_of(row.pattern)][row.method.lower()]
    path = example_path(document, row)
    query = {
        parameter["name"]: parameter["example"]
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query" and "example" in parameter
    }
    path += query_text(query)
    if row.body is None:
        return api.send(row.method, path)
    body = operation["requestBody"]["content"]["application/json"]["example"]
    return api.json(row.method, path, body)


@pytest.mark.parametrize("row", [row for row in SHAPED if row.name not in ELSEWHERE], ids=named)
def test_example_requests_work(document: Json, judge: Judge, stage: Api, row: Operation) -> None:
    """The reply has exactly the members of its shape, and those that the example shows."""
    reply = send_example(document, stage, row)
    assert reply.status_code in row.statuses, reply.text
    assert row.reply is not None
    msgspec.json.decode(reply.content, type=row.reply)
    body = reply.json()
    judge.require(row.reply.__name__, body)
    assert row.example is not None
    # This server has no replica.
    shown = {"role"} if row is BY_NAME["replica"] else set(row.example)
    assert set(body) == shown


@pytest.mark.parametrize(
    "row", [row for row in OPERATIONS if row.content and not row.frames], ids=named
)
def test_replies_without_a_shape_have_their_type(
    document: Json, stage: Api, row: Operation
) -> None:
    for media in row.content:
        path = example_path(document, row)
        reply = stage.send(row.method, path, headers={"accept": media})
        assert reply.status_code in row.statuses
        assert reply.headers["content-type"].partition(";")[0] == media


def require_frames(judge: Judge, row: Operation, frames: list[Frame]) -> set[str]:
    """Hold frames against their shapes; returns which events there were."""
    events = set()
    for frame in frames:
        if frame.event is not None:
            judge.require(row.frames[frame.event].__name__, frame.json())
            events.add(frame.event)
    return events


def test_frames_of_work(judge: Judge, stage: Api) -> None:
    """Jobs, and the end of the queue."""
    row = BY_NAME["work"]
    with stage.work(QUEUE, node="api-fra-1", max=4) as stream:
        assert stream.status == 200
        frames = stream.until("job")
        ok(stage.delete_topic(QUEUE))
        frames += stream.until("error")
    assert require_frames(judge, row, frames) == set(row.frames)


def test_frames_of_watch(judge: Judge, stage: Api) -> None:
    """Records, a gap, the head, the end of the topic."""
    row = BY_NAME["watch"]
    stage.append(QUEUE, 1, 2)
    ok(stage.put(QUEUE, type="queue", cap_records=1))
    session = ok(stage.create_watch({QUEUE: {}}, include_tags=True))
    with stage.open_watch(session["wid"]) as stream:
        assert stream.status == 200
        frames = stream.until("caught-up")
        ok(stage.delete_topic(QUEUE))
        frames += stream.until("topic-deleted")
    assert require_frames(judge, row, frames) == set(row.frames) - {"error"}


def test_the_judge_bites(judge: Judge) -> None:
    good = {"status": "ok", "version": "1", "uptime_ms": 1}
    judge.require("Health", good)
    for bad in ({**good, "more": 1}, {**good, "uptime_ms": "1"}, {"status": "ok"}):
        with pytest.raises(jsonschema_rs.ValidationError):
            judge.require("Health", bad)
