"""The real server under a property-based client that knows nothing but the OpenAPI document.

`make test-all` sends more examples. What is sent is derived from the document,
fitting it and breaking it; the checks are those of schemathesis: never a 5xx, only documented
statuses and content types, replies of the documented shape, what breaks the document is refused.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckFunction
from schemathesis.config import GenerationConfig, SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
    response_schema_conformance,
)
from schemathesis.specs.openapi.schemas import OpenApiSchema

from logqueue.api.openapi.document import path_of
from logqueue.api.operations import OPERATIONS, Kind, Operation
from logqueue.model.limits import FOLLOW_UP_RECORDS_MAX
from tests.effort import IS_THOROUGH, scaled
from tests.http.api import Api
from tests.http.described import PATH
from tests.http.expect import ok
from tests.http.process import ServerProcess

EXAMPLES = scaled(3, 50)
BOUNDARIES_EACH = 1 if IS_THOROUGH else 4
"""Of so many boundaries of an operation one is tried, beginning at another one for each."""
AUTHORIZED = {"Authorization": "Bearer full"}
BODY_BYTES = 1 << 20
"""What most operations take."""
QUEUE, LOG, ROUTER = "fuzz.queue", "fuzz.log", "fuzz.router"

GENERATION = GenerationConfig(
    # Lengths are bytes to the server and characters to JSON Schema: the same for ASCII.
    codec="ascii",
    with_security_parameters=False,
    deterministic=True,
    database="none",
)

DEPENDENT = {"retry_backoff", "claim_rate", "dead_letter", "on_exhausted", "on_expire"}
"""Members of a config whose patches fit or do not by what the rest of it is."""

ENDLESS = {"work", "watch"}
"""Their replies never end when all is well: only names that lead nowhere are sent."""


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of its own, since anything may happen to its topics."""
    directory = tmp_path_factory.mktemp("fuzzed") / "data"
    process = ServerProcess(directory, settings={"API_KEYS": "full"}).start()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def schema(fuzzed: ServerProcess) -> OpenApiSchema:
    """What the server says about itself, as schemathesis reads it."""
    config = SchemathesisConfig()
    config.projects.default.generation = GENERATION
    return schemathesis.openapi.from_url(fuzzed.base_url + PATH, headers=AUTHORIZED, config=config)


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    """Connections kept, a key sent."""
    with requests.Session() as kept:
        kept.trust_env = False
        kept.headers.update(AUTHORIZED)
        yield kept


@pytest.fixture
def stage(fuzzed: ServerProcess) -> Iterator[None]:
    """A queue, a log and a router that some of the requests find."""
    with Api(fuzzed.base_url, key="full") as api:
        for topic in (QUEUE, LOG):
            ok(api.delete_topic(topic))
        api.make_queue(QUEUE)
        api.make_log(LOG)
        api.make_router(ROUTER, LOG, "fuzz.copies")
        api.append(QUEUE, *range(20))
        api.append(LOG, *range(20))
        yield


CALLS = [
    pytest.param(row, mode, id=f"{row.name}-{mode.value}")
    for row in OPERATIONS
    for mode in GenerationMode
    # A name in a path cannot be broken: any text is one, or absent.
    if mode is GenerationMode.POSITIVE or row.body or row.query
    # No request for the live feed is refused for what it says, and its reply has no end.
    if row.kind is not Kind.EVENTS
]


@pytest.mark.parametrize(("row", "mode"), CALLS)
@pytest.mark.usefixtures("stage")
def test_the_server_keeps_its_word(
    fuzzed: ServerProcess,
    schema: OpenApiSchema,
    session: requests.Session,
    row: Operation,
    mode: GenerationMode,
) -> None:
    """As the module says, for one operation."""
    operation = schema[path_of(row.pattern)][row.method]

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), name=st.sampled_from(known_names(row)))
    def run(case: Case[Any], name: str | None) -> None:
        settle(case, name)
        response = case.call(session=session, timeout=120)
        case.validate_response(response, excluded_checks=beside_the_point(case, row))

    run()
    assert fuzzed.running, fuzzed.log()


ENDING = [row for row in OPERATIONS if row.kind is not Kind.EVENTS or row.name in ENDLESS]
"""Operations that answer at once, or do for names that lead nowhere."""


@pytest.mark.parametrize("row", ENDING, ids=lambda row: row.name)
@pytest.mark.usefixtures("stage")
def test_the_server_keeps_its_word_at_every_boundary(
    fuzzed: ServerProcess, schema: OpenApiSchema, session: requests.Session, row: Operation
) -> None:
    """As the module says, with each bound, type and required member met and broken in turn."""
    operation = schema[path_of(row.pattern)][row.method]
    names = itertools.cycle(known_names(row))
    cases = schema.iter_coverage_cases(
        operation, generation_modes=[*GenerationMode], generation_config=GENERATION
    )
    for case in itertools.islice(cases, len(row.name) % BOUNDARIES_EACH, None, BOUNDARIES_EACH):
        settle(case, next(names))
        response = case.call(session=session, timeout=120)
        case.validate_response(response, excluded_checks=beside_the_point(case, row))
    assert fuzzed.running, fuzzed.log()


def known_names(row: Operation) -> list[str | None]:
    """Names that exist, for what a path takes; None for whatever is generated."""
    if row.name in ENDLESS:
        return ["fuzz.nowhere"]
    if "/topics/*" in row.pattern:
        return [None, QUEUE, LOG]
    return [None, ROUTER] if "/routers/*" in row.pattern else [None]


def settle(case: Case[Any], name: str | None) -> None:
    """Let a case meet something that exists, not wait for what never comes, and be strict."""
    if name is not None:
        for parameter in {*case.path_parameters} - {"seq", "key"}:
            case.path_parameters[parameter] = name
    # Whatever version is generated, no config has it: 412 before anything else is looked at.
    case.query.pop("if_version", None)
    if "wait_ms" in case.query:
        case.query["wait_ms"] = 1
    if isinstance(case.body, dict):
        body: Any = with_strict_integers(case.body)
        if type(body.get("wait_ms")) is int:
            body["wait_ms"] = min(body["wait_ms"], 1)
        case.body = body


def with_strict_integers(value: Any) -> Any:
    """1.0 is an integer to JSON Schema, and none to the contract."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: with_strict_integers(member) for key, member in value.items()}
    return [*map(with_strict_integers, value)] if isinstance(value, list) else value


def beside_the_point(case: Case[Any], row: Operation) -> list[CheckFunction]:
    """Checks that the contract itself does not pass."""
    # Keys have tests of their own; asking each time without one would cost two more requests.
    checks: list[CheckFunction] = [ignored_auth]
    meta = case.meta
    if row.kind is Kind.EVENTS:
        # What is described is the stream as text; tests/server/stats look at its events.
        checks.append(response_schema_conformance)
    if meta is not None and not meta.is_negative_at(ParameterLocation.BODY):
        # Lenient on purpose: booleans and page sizes that are none mean the default, and a name
        # that no topic can have is simply absent.
        checks.append(negative_data_rejection)
    if len(json.dumps(case.body, default=str)) > BODY_BYTES:
        # Refused for its size, whatever else is wrong with it.
        checks.append(negative_data_rejection)
    if row.name == "write_records" and isinstance(case.body, dict) and case.body.get("config"):
        # The config of a write counts only where the topic is absent.
        checks.append(negative_data_rejection)
    if row.name == "patch_topic" and isinstance(case.body, dict) and DEPENDENT & case.body.keys():
        checks.append(positive_data_acceptance)
    if row.name in ("put_schedule", "list_firings"):
        # No JSON Schema says what a cron text or a time zone is.
        checks.append(positive_data_acceptance)
    if row.name == "websocket" or "cursor" in case.query or not is_consistent(case.body):
        checks.append(positive_data_acceptance)
    if case.path_parameters.get("topic") in targets_of(case.body):
        checks.append(positive_data_acceptance)
    return checks


def targets_of(body: Any) -> list[Any]:
    """Where a body has jobs go, which must be elsewhere."""
    if not isinstance(body, dict):
        return []
    own = [body.get(member) for member in ("to", "dead_letter", "archive")]
    return own + targets_of(body.get("config"))


def is_consistent(body: Any) -> bool:
    """Whether a body keeps the rules between members that JSON Schema has no words for."""
    if not isinstance(body, dict):
        return True
    seqs, leases, results = body.get("seqs"), body.get("lease_ids"), body.get("results")
    if isinstance(seqs, list) and isinstance(results, list) and len(seqs) != len(results):
        return False
    if isinstance(seqs, list) and isinstance(leases, list) and leases:
        return len(seqs) == len(leases)
    append = body.get("append")
    if isinstance(append, list) and append:
        entries = [entry for entry in append if isinstance(entry, dict)]
        topics = {str(entry.get("topic")) for entry in entries}
        records = sum(len(entry.get("records") or ()) for entry in entries)
        return bool(seqs) and len(topics) == len(append) and records <= FOLLOW_UP_RECORDS_MAX
    return "source" not in body or body["source"] != body.get("dest")
