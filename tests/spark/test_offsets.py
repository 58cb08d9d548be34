"""Offsets and options of the sources, without Spark: forms, mistakes, fair shares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logqueue.pipeline.errors import PipelineError
from logqueue.pipeline.reading import options
from logqueue.pipeline.reading.offsets import EventsOffset, Place, RecordsOffset, share

OFFLINE = {"path": "/data", "topics": "orders"}
LIVE = {"url": "http://127.0.0.1:4000", "topics": "orders"}


# -- offsets ---------------------------------------------------------------------------------------


def test_offsets_come_back_as_they_were_with_sorted_keys() -> None:
    offset = RecordsOffset({"b": Place("l-2", 7), "a": Place("l-1", 3, complete_from=9)})
    text = json.dumps(offset.json(), separators=(",", ":"))
    assert text == (
        '{"v":1,"topics":{"a":{"log":"l-1","next":3,"told":9},"b":{"log":"l-2","next":7}}}'
    )
    assert RecordsOffset.parse(json.loads(text)) == offset
    whole = EventsOffset("ab", 12)
    assert EventsOffset.parse(whole.json()) == whole


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"v": 2, "topics": {}},
        {"v": 1, "topics": []},
        {"v": 1, "topics": {"a": 3}},
        {"v": 1, "topics": {"a": {"log": "x", "next": -1}}},
        {"v": 1, "topics": {"a": {"log": "x", "next": True}}},
        {"v": 1, "log": "x", "next": 3},
    ],
)
def test_other_values_are_no_offset_of_records(value: object) -> None:
    with pytest.raises(PipelineError, match=r"not an offset of records"):
        RecordsOffset.parse(value)


@pytest.mark.parametrize("value", [None, {"v": 1}, {"v": 1, "log": 3, "next": 3}])
def test_other_values_are_no_offset_of_events(value: object) -> None:
    with pytest.raises(PipelineError, match=r"not an offset of lease events"):
        EventsOffset.parse(value)


@given(
    st.integers(0, 200),
    st.lists(st.integers(0, 60), min_size=1, max_size=8),
    st.integers(0, 10**9),
)
def test_shares_are_whole_fair_and_bounded(total: int, wanted: list[int], turn: int) -> None:
    shares = share(total, wanted, turn)
    assert sum(shares) == min(total, sum(wanted))
    for mine, want in zip(shares, wanted, strict=True):
        assert 0 <= mine <= want
        # Who gets less than it wants gets no less than anybody else, but for the remainder.
        assert mine == want or mine >= max(shares) - 1


def test_no_topic_starves_when_there_is_less_than_one_for_each() -> None:
    got = [0, 0, 0, 0, 0]
    for round in range(10):
        for index, more in enumerate(share(2, [100] * 5, turn=2 * round)):
            got[index] += more
    assert got == [4, 4, 4, 4, 4]


# -- options ---------------------------------------------------------------------------------------


def test_defaults() -> None:
    reading = options.offline(OFFLINE).reading
    assert reading.selection.names == ("orders",)
    assert (reading.events, reading.data, reading.verify) == ("data", "string", "crc")
    assert (reading.start.word, reading.end.word) == ("earliest", "latest")
    assert (reading.max_records, reading.max_bytes, reading.min_partitions) == (None, None, 1)
    assert reading.partition_bytes == 64 << 20
    assert reading.fail_on_data_loss and not reading.pushdown
    assert options.live(LIVE).transport == "auto"


def test_names_are_case_insensitive_and_values_typed(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    read = options.live(
        {
            "URL": "http://h:1/",
            "TOPICPATTERN": "or.*",
            "startingoffsets": '{"orders": 5, "other": -2}',
            "EndingTimestamp": "2026-01-31T09:30:00Z",
            "MAXBYTESPERTRIGGER": "2m",
            "minPartitions": "3",
            "PartitionBytes": "1 MiB".replace(" ", ""),
            "failondataloss": "FALSE",
            "Payload": "binary",
            "tokenFile": str(key),
            "verify": "none",
        }
    )
    assert (read.url, read.token) == ("http://h:1", "secret")
    assert "secret" not in repr(read)
    reading = read.reading
    assert reading.selection.fits("orders") and not reading.selection.fits("my-orders")
    assert reading.start.places == {"orders": 5, "other": -2}
    assert reading.end.at_ms == 1769851800000
    assert (reading.max_bytes, reading.partition_bytes) == (2 << 20, 1 << 20)
    assert (reading.min_partitions, reading.fail_on_data_loss) == (3, False)
    assert (reading.data, reading.verify) == ("binary", "none")


def test_paths_are_listed_with_the_archive_behind_them() -> None:
    read = options.offline({"path": "/data, /old", "archive": "/old", "topics": "a, b,a"})
    assert read.paths == ("/data", "/old")
    assert read.reading.selection.names == ("a", "b")


def test_an_offset_of_a_stream_is_a_bound() -> None:
    text = '{"v":1,"topics":{"orders":{"log":"l-1","next":350000}}}'
    start = options.offline({**OFFLINE, "startingOffsets": text}).reading.start
    assert (start.places, start.logs) == ({"orders": 350000}, {"orders": "l-1"})
    events = {**OFFLINE, "events": "leases"}
    start = options.offline({**events, "startingOffsets": "17"}).reading.start
    assert start.places == {"": 17}
    start = options.offline(
        {**events, "startingOffsets": '{"v":1,"log":"ab","next":4}'}
    ).reading.start
    assert (start.places, start.logs) == ({"": 4}, {"": "ab"})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"topic": "x"}, "option topic is unknown .*topicPattern"),
        ({"path": " , "}, "option path is missing"),
        ({"topicPattern": ".*"}, "exactly one of the options topics"),
        ({"topics": ","}, "option topics names no topic"),
        ({"topics": "a*"}, r"'a\*' is not a valid topic name.*topicPattern"),
        ({"events": "jobs"}, "option events is 'jobs': write data or leases"),
        ({"startingOffsets": "begin"}, "option startingOffsets is 'begin'.*earliest"),
        ({"startingOffsets": "[1]"}, "option startingOffsets must map topics"),
        ({"startingOffsets": '{"a": 1.5}'}, "option startingOffsets must map topics"),
        ({"startingOffsets": '{"a": -3}'}, "option startingOffsets must map topics"),
        ({"startingOffsets": '{"v":7}'}, "option startingOffsets: .*not an offset"),
        ({"events": "leases", "endingOffsets": '{"a":1}'}, "option endingOffsets with events"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "startingTimestamp contradict"),
        ({"startingTimestamp": "tomorrow"}, "option startingTimestamp is 'tomorrow'.*ISO 8601"),
        ({"startingTimestamp": "2026"}, "option startingTimestamp is '2026'"),
        ({"maxRecordsPerTrigger": "0"}, "option maxRecordsPerTrigger is '0'.* from 1"),
        ({"maxRecordsPerTrigger": "5k"}, "option maxRecordsPerTrigger is '5k'"),
        ({"maxRecordsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "maxBytesPerTrigger contradict"),
        ({"minPartitions": "many"}, "option minPartitions is 'many'"),
        ({"partitionBytes": "1k"}, "option partitionBytes is '1k'.*65536"),
        ({"failOnDataLoss": "perhaps"}, "option failOnDataLoss is 'perhaps': write true or false"),
        ({"data": "json"}, "option data is 'json': write string, binary or none"),
        ({"data": "none", "payload": "string"}, "option data is given twice"),
        ({"verify": "md5"}, "option verify is 'md5'"),
    ],
)
def test_mistakes_name_the_option(given: dict[str, str], named: str) -> None:
    with pytest.raises(PipelineError, match=named):
        options.offline({**OFFLINE, **given})


def test_a_pattern_must_be_one() -> None:
    with pytest.raises(PipelineError, match=r"option topicPattern is not a regular expression"):
        options.offline({"path": "/data", "topicPattern": "("})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"url": ""}, "option url is missing"),
        ({"url": "localhost:4000"}, "option url is 'localhost:4000': write the server"),
        ({"url": "http://a:4000,b:4000"}, "option url is 'b:4000': write the server"),
        ({"path": "/data"}, "option path is unknown to format logqueue;"),
        ({"token": "a", "tokenFile": "b"}, "token and tokenFile contradict"),
        ({"tokenFile": "/nowhere/key"}, "option tokenFile: /nowhere/key cannot be read"),
        ({"transport": "carrier"}, "option transport is 'carrier'"),
        ({"transport": "pages", "events": "leases"}, "option transport=pages brings records only"),
    ],
)
def test_mistakes_of_live_options_name_the_option(given: dict[str, str], named: str) -> None:
    with pytest.raises(PipelineError, match=named):
        options.live({**LIVE, **given})


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"orders": -1}'},
        {"startingTimestamp": "2026-01-01"},
    ],
)
def test_a_stream_refuses_a_start_that_moves(given: dict[str, str]) -> None:
    reading = options.offline({**OFFLINE, **given}).reading
    with pytest.raises(PipelineError, match=r"logqueue\.spark\.resolve"):
        options.require_stream(reading)


def test_a_stream_has_no_end_and_a_batch_has_both() -> None:
    for end in ({"endingOffsets": '{"orders": 5}'}, {"endingTimestamp": "2026-01-01"}):
        with pytest.raises(PipelineError, match=r"a stream has no end"):
            options.require_stream(options.offline({**OFFLINE, **end}).reading)
    for empty in ({"startingOffsets": "latest"}, {"endingOffsets": "earliest"}):
        with pytest.raises(PipelineError, match=r"reads nothing"):
            options.require_batch(options.offline({**OFFLINE, **empty}).reading)
    plain = options.offline(OFFLINE).reading
    options.require_stream(plain)
    options.require_batch(plain)
