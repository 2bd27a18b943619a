"""The options of a pipeline's sources, and the sources that a sink needs."""

import json
from dataclasses import replace

import pytest

from penstock.core.ids import TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import (
    PipelineSpec,
    SourceSpec,
    StepSpec,
    TableSpec,
)
from penstock.spark.progress import SourceOffsets
from penstock.spark.run.compile import views_needed
from penstock.spark.run.source_options import (
    options_of,
    range_options_of,
    starting_options_of,
    stream_options_of,
)
from penstock.spark.sinks.parquet.kind import ParquetSinkSpec
from penstock.spark.source.options import batch_options, stream_options

CLICKS = SourceSpec(
    name="clicks", topics=("a", "b"), schema="id int", options={"minPartitions": "3"}
)
SPEC = PipelineSpec(
    name="p",
    bootstrap_servers="one:9092",
    kafka={"security.protocol": "SSL"},
    sources=(CLICKS, SourceSpec(name="orders", pattern="orders-.*", headers=True)),
    tables=(TableSpec(name="people", path="people.csv"),),
    steps=(
        StepSpec(name="known", sql="SELECT * FROM clicks JOIN `people` USING (id)"),
        StepSpec(name="unique", deduplicate=("id",), source="known"),
        StepSpec(name="made", function="steps:made"),
    ),
    sinks=(ParquetSinkSpec(name="out", view="known", path="out"),),
)
AT = SourceOffsets({TopicPartition("a", 0): 5}, {"a": "id-a"}, "clicks")


def test_sources_have_the_client_settings_of_the_pipeline_and_read_committed() -> None:
    result = options_of(SPEC, CLICKS)
    assert result["kafka.bootstrap.servers"] == "one:9092"
    assert result["kafka.security.protocol"] == "SSL"
    assert result["kafka.isolation.level"] == "read_committed"
    assert (result["subscribe"], result["minPartitions"]) == ("a,b", "3")
    assert (result["failOnDataLoss"], result["sourceName"]) == ("true", "clicks")
    assert options_of(SPEC, SPEC.sources[1])["subscribePattern"] == "orders-.*"
    assert options_of(SPEC, SPEC.sources[1])["includeHeaders"] == "true"


def test_settings_of_producers_are_not_for_sources() -> None:
    """Sinks, dead letters and replays get the same settings."""
    kafka = {"max.request.size": "5000000", "transaction.timeout.ms": "1000", "client.id": "c"}
    options = options_of(replace(SPEC, kafka=kafka), CLICKS)
    assert "kafka.max.request.size" not in options
    assert "kafka.transaction.timeout.ms" not in options
    assert options["kafka.client.id"] == "c"


def test_options_are_accepted_by_the_source() -> None:
    stream = stream_options(stream_options_of(SPEC, CLICKS, AT, 1000))
    assert stream.max_offsets_per_trigger == 1000
    assert stream.source_name == "clicks"
    end = SourceOffsets({**AT.offsets, TopicPartition("a", 1): 3, TopicPartition("a", 0): 9})
    options = range_options_of(SPEC, CLICKS, AT, end)
    assert batch_options(options).read_committed
    assert json.loads(options["startingOffsets"]) == {"a": {"0": 5, "1": 0}}
    assert json.loads(options["endingOffsets"]) == {"a": {"0": 9, "1": 3}}


@pytest.mark.parametrize(
    ("starting", "option", "value"),
    [
        ("earliest", "startingOffsets", "earliest"),
        ("latest", "startingOffsets", "latest"),
        ("1970-01-01T00:00:05Z", "startingTimestamp", "5000"),
        ("1970-01-01T00:00:05", "startingTimestamp", "5000"),
        ("1970-01-01T01:00:05+01:00", "startingTimestamp", "5000"),
    ],
)
def test_the_start_of_a_source(starting: str, option: str, value: str) -> None:
    source = SourceSpec(name="s", topics=("a",), starting=starting)
    result = starting_options_of(SPEC, source)
    assert result[option] == value
    stream_options(result)


def test_an_invalid_start_time_is_refused() -> None:
    with pytest.raises(OptionError, match="earliest, latest or a time"):
        starting_options_of(SPEC, SourceSpec(name="s", topics=("a",), starting="yesterday"))


def test_only_sources_that_a_sink_needs_are_read() -> None:
    assert views_needed(SPEC, "known") == {"known", "clicks", "people"}
    assert views_needed(SPEC, "unique") == {"unique", "known", "clicks", "people"}
    assert views_needed(SPEC, "orders") == {"orders"}


def test_a_function_may_read_all_views_before_it() -> None:
    assert views_needed(SPEC, "made") == {"made", "unique", "known", "clicks", "orders", "people"}


def test_a_name_within_a_longer_one_is_not_read() -> None:
    step = StepSpec(name="s", sql="SELECT clicks_total FROM Orders")
    spec = PipelineSpec(
        name="p", bootstrap_servers="", sources=SPEC.sources, steps=(step,), sinks=()
    )
    assert views_needed(spec, "s") == {"s", "orders"}
