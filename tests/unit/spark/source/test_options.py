"""The options of the source: those of Spark's own source, with the same checks (D1)."""

import logging
import re

import pytest

from penstock.client.errors import ConfigError
from penstock.core.ids import TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.progress import SourceOffsets
from penstock.spark.source.options import (
    NAMES,
    Assign,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    batch_options,
    check_options,
    stream_options,
    wants_headers,
)
from penstock.spark.source.positions import AtOffsets, AtTime, AtTimes, LogBoundary
from penstock.spark.source.range_reader import ReadSettings

LEAST = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(**options: str) -> SourceOptions:
    return batch_options({**LEAST, **_dotted(options)})


def stream(**options: str) -> SourceOptions:
    return stream_options({**LEAST, **_dotted(options)})


def _dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in options.items()}


def without_subscribe(**options: str) -> SourceOptions:
    return stream_options({"kafka.bootstrap.servers": "h:1", **options})


def test_defaults() -> None:
    result = stream()
    assert result == SourceOptions(
        topics=Subscribe(("t",)),
        client={"bootstrap.servers": "h:1"},
        starting=LogBoundary.LATEST,
        ending=LogBoundary.LATEST,
        max_offsets_per_trigger=None,
        min_offsets_per_trigger=None,
        max_trigger_delay_ms=900_000,
        min_partitions=None,
        max_records_per_partition=None,
        include_headers=False,
        fail_on_data_loss=True,
        poll_timeout_ms=120_000,
        fetch_offset_num_retries=3,
        fetch_offset_retry_interval_ms=1_000,
        source_name="",
    )
    assert batch().starting is LogBoundary.EARLIEST
    assert not result.read_committed


def test_every_option_is_read_whatever_its_case() -> None:
    options = stream_options(
        {
            "KAFKA.BOOTSTRAP.SERVERS": "h:1",
            "kafka.isolation.level": "READ_COMMITTED",
            "SUBSCRIBE": " a, b ,a,",
            "startingoffsets": " Earliest ",
            "MaxOffsetsPerTrigger": "7",
            "minOffsetsPerTrigger": "3",
            "maxTriggerDelay": "30s",
            "minPartitions": "4",
            "maxRecordsPerPartition": "5",
            "includeHeaders": "TRUE",
            "failOnDataLoss": "False",
            "kafkaConsumer.pollTimeoutMs": "9",
            "fetchOffset.numRetries": "2",
            "fetchOffset.retryIntervalMs": "0",
            "groupIdPrefix": "g",
            "sourceName": "clicks",
            "kafka.group.id": "g",
        }
    )
    assert options == SourceOptions(
        topics=Subscribe(("a", "b")),
        client={"bootstrap.servers": "h:1", "isolation.level": "READ_COMMITTED"},
        starting=LogBoundary.EARLIEST,
        ending=LogBoundary.LATEST,
        max_offsets_per_trigger=7,
        min_offsets_per_trigger=3,
        max_trigger_delay_ms=30_000,
        min_partitions=4,
        max_records_per_partition=5,
        include_headers=True,
        fail_on_data_loss=False,
        poll_timeout_ms=9,
        fetch_offset_num_retries=2,
        fetch_offset_retry_interval_ms=0,
        source_name="clicks",
    )
    assert options.read_committed
    assert wants_headers({"INCLUDEHEADERS": "true"})


def test_subscriptions_by_pattern_and_assignment() -> None:
    assert without_subscribe(subscribePattern="a.*").topics == SubscribePattern(re.compile("a.*"))
    assert without_subscribe(assign='{"t": [0, 1]}').topics == Assign(frozenset((A, B)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "none of them is set"),
        ({"subscribe": "t", "assign": "{}"}, "subscribe and assign is set"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": ""}, "is empty"),
        ({"subscribePattern": "("}, "is no expression"),
        ({"assign": "t"}, "assign is e.g."),
        ({"assign": '{"t": 1}'}, "assign is e.g."),
        ({"assign": '{"t": [-1]}'}, "assign is e.g."),
        ({"assign": '{"t": [true]}'}, "assign is e.g."),
        ({"assign": "{}"}, "names no partition"),
    ],
)
def test_invalid_subscriptions_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        without_subscribe(**options)


def test_a_time_for_all_wins_over_single_times_and_these_over_offsets() -> None:
    offsets = '{"t": {"0": 5, "1": -2}}'
    times = '{"t": {"0": 100, "1": 200}}'
    assert stream(startingOffsets=offsets).starting == AtOffsets(SourceOffsets({A: 5, B: -2}))
    with_times = stream(startingOffsets=offsets, startingOffsetsByTimestamp=times)
    assert with_times.starting == AtTimes({A: 100, B: 200}, False)
    with_time = stream(
        startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp="300"
    )
    assert with_time.starting == AtTime(300, False)
    end = batch(endingOffsetsByTimestamp=times, endingOffsets=offsets)
    assert end.ending == AtTimes({A: 100, B: 200}, True)
    assert batch(endingTimestamp="300", endingOffsets="latest").ending == AtTime(300, True)


def test_the_strategy_for_times_after_the_last_record() -> None:
    late = stream(startingTimestamp="1", startingOffsetsByTimestampStrategy="LATEST")
    assert late.starting == AtTime(1, True)
    with pytest.raises(OptionError, match="it is error or latest"):
        stream(startingOffsetsByTimestampStrategy="earliest")


def test_offsets_may_contain_the_topic_ids_of_a_checkpoint() -> None:
    offsets = SourceOffsets({A: 5}, {"t": "id"}, "clicks")
    text = '{"#penstock": {"source": "clicks", "topicIds": {"t": "id"}}, "t": {"0": 5}}'
    assert stream(startingOffsets=text).starting == AtOffsets(offsets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets=latest leaves nothing"),
        ({"endingOffsets": "earliest"}, "endingOffsets=earliest leaves nothing"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, r"startingOffsets of t-0 is -1 \(latest\)"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, r"endingOffsets of t-0 is -2 \(earliest\)"),
        (
            {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"1": 5}}'},
            "must name the same partitions: t-0, t-1",
        ),
        (
            {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}'},
            "t-0 is 5, after its endingOffsets 4",
        ),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "5 is later than endingTimestamp 4"),
        (
            {
                "startingOffsetsByTimestamp": '{"t": {"0": 5}}',
                "endingOffsetsByTimestamp": '{"t": {"0": 4}}',
            },
            "t-0 is 5, after its endingOffsetsByTimestamp 4",
        ),
    ],
)
def test_a_batch_that_reads_nothing_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        batch(**options)
    check_options({**LEAST, **options})


def test_symbolic_end_offsets_are_not_compared() -> None:
    result = batch(startingOffsets='{"t": {"0": 5}}', endingOffsets='{"t": {"0": -1}}')
    assert result.ending == AtOffsets(SourceOffsets({A: -1}))


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    text = '{"t": {"0": 5}}' if name != "endingTimestamp" else "5"
    with pytest.raises(OptionError, match=r"availableNow=True"):
        stream(**{name: text})


def test_trigger_options_have_no_effect_on_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        batch(maxOffsetsPerTrigger="5")
    assert "maxOffsetsPerTrigger has no effect on spark.read" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "soon"}, "earliest, latest, or an offset for each"),
        ({"startingOffsets": "{"}, "startingOffsets is e.g."),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "-3 is no offset of t-0"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "True is no offset of t-0"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, "startingOffsets is e.g."),
        ({"startingOffsets": '{"t": 3}'}, "startingOffsets is e.g."),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -3}}'}, "-3 is no time for t-0"),
        ({"startingOffsetsByTimestamp": "[]"}, "startingOffsetsByTimestamp is e.g."),
        ({"startingOffsets": f'{{"t": {{"0": {2**63}}}}}'}, f"{2**63} is no offset of t-0"),
        ({"startingOffsetsByTimestamp": f'{{"t": {{"0": {2**63}}}}}'}, f"{2**63} is no time"),
        ({"startingTimestamp": "noon"}, "startingTimestamp is a whole number"),
        ({"startingTimestamp": str(2**63)}, "startingTimestamp is a whole number"),
        ({"maxOffsetsPerTrigger": "0"}, "must be greater than 0"),
        ({"minPartitions": "many"}, "minPartitions is a whole number"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition is a whole number"),
        ({"includeHeaders": "yes"}, "includeHeaders is true or false"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a time such as"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "minOffsetsPerTrigger 5 is greater than maxOffsetsPerTrigger 4",
        ),
    ],
)
def test_invalid_values_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        stream(**options)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("auto__offset__reset", "startingOffsets"),
        ("key__deserializer", "column `key`"),
        ("value__deserializer", "column `value`"),
        ("enable__auto__commit", "checkpoint"),
        ("interceptor__classes", "a query can do"),
    ],
)
def test_client_settings_that_the_source_controls_are_refused(name: str, instead: str) -> None:
    with pytest.raises(OptionError, match=instead):
        stream(**{f"kafka__{name}": "x"})


def test_client_settings_are_passed_to_the_client() -> None:
    secure = stream(
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="PLAIN",
        kafka__sasl__jaas__config="x-secret",
    )
    assert secure.client["sasl.jaas.config"] == "x-secret"
    assert "secret" not in repr(secure)
    assert "secret" not in repr(ReadSettings(secure.client))
    message = r"no setting kafka\.fetch\.min\.byte: did you mean kafka\.fetch\.min\.bytes\?"
    with pytest.raises(ConfigError, match=message):
        stream(kafka__fetch__min__byte="1")
    message = (
        r"kafka\.isolation\.level=committed: it must be one of read_uncommitted, read_committed"
    )
    with pytest.raises(ConfigError, match=message):
        stream(kafka__isolation__level="committed")
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        stream_options({"subscribe": "t"})


def test_java_only_settings_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    """Queries for Spark's own source set them; they do not change the result."""
    more = {"ssl__protocol": "TLSv1.3", "client__dns__lookup": "use_all_dns_ips"}
    unused = {"auto__commit__interval__ms": "5", "group__id": "g"}
    with caplog.at_level(logging.WARNING):
        result = stream(**{f"kafka__{name}": value for name, value in {**more, **unused}.items()})
    assert result == stream()
    assert "kafka.ssl.protocol has no effect" in caplog.text
    with pytest.raises(ConfigError, match=r"no setting kafka\.sasl\.login\.class"):
        stream(kafka__sasl__login__class="x")


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("subscrib", "subscribe"),
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("failOnDataLos", "failOnDataLoss"),
        ("includeHeader", "includeHeaders"),
        ("bootstrap__servers", r"kafka\.bootstrap\.servers"),
        ("isolation__level", r"kafka\.isolation\.level"),
    ],
)
def test_misspelt_options_are_refused(name: str, suggestion: str) -> None:
    """Spark would ignore them, and the query would not do what the user intended."""
    with pytest.raises(OptionError, match=f"did you mean {suggestion}"):
        stream(**{name: "1"})


def test_other_options_are_ignored_as_spark_does() -> None:
    assert stream(path="/x", somethingElse="y") == stream()


def test_option_names_are_unique_ignoring_case() -> None:
    assert len({name.lower() for name in NAMES}) == len(NAMES)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("5", 5), ("5ms", 5), ("2s", 2_000), ("3m", 180_000), ("1min", 60_000), ("1h", 3_600_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == ms
