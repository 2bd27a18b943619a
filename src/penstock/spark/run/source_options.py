"""The options of `format("penstock")` with which a pipeline reads its sources."""

import json
from datetime import UTC, datetime

from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import PipelineSpec, SourceSpec
from penstock.spark.progress import SourceOffsets


def producer_options_of(spec: PipelineSpec) -> dict[str, str]:
    """Returns the settings that only producers have; sources would refuse them."""
    from penstock.client.settings import ConsumerOptions, ProducerOptions, settings_of

    names = settings_of(ProducerOptions).keys() - settings_of(ConsumerOptions).keys()
    options = {name.replace(".", "_"): value for name, value in spec.kafka.items()}
    return {name: value for name, value in options.items() if name in names}


def options_of(spec: PipelineSpec, source: SourceSpec) -> dict[str, str]:
    """Returns the options of a source, without a starting position."""
    from penstock.spark.decode.options import source_options

    producer_options = producer_options_of(spec)
    options = {
        f"kafka.{name}": value
        for name, value in spec.client_settings.items()
        if name.replace(".", "_") not in producer_options
    }
    options["kafka.isolation.level"] = spec.kafka.get("isolation.level", "read_committed")
    options["failOnDataLoss"] = "true"
    options |= source_options(source)
    options["sourceName"] = source.name
    options["includeHeaders"] = str(source.headers).lower()
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    return options


def stream_options_of(
    spec: PipelineSpec, source: SourceSpec, start: SourceOffsets, limit: int
) -> dict[str, str]:
    """Returns the options for `readStream`; `limit` is the number of records of a batch."""
    return {
        "maxOffsetsPerTrigger": str(limit),
        **options_of(spec, source),
        "startingOffsets": json.dumps(start.to_json()),
    }


def range_options_of(
    spec: PipelineSpec, source: SourceSpec, start: SourceOffsets, end: SourceOffsets
) -> dict[str, str]:
    """Returns the options for `read` of a range; partitions without a start are new ones."""
    first = {partition: start.offsets.get(partition, 0) for partition in end.offsets}
    return {
        **options_of(spec, source),
        "startingOffsets": json.dumps(SourceOffsets(first, end.topic_ids).to_json()),
        "endingOffsets": json.dumps(SourceOffsets(end.offsets, end.topic_ids).to_json()),
    }


def starting_options_of(spec: PipelineSpec, source: SourceSpec) -> dict[str, str]:
    """Returns the options of a source that was never read: they start at its `starting`."""
    options = options_of(spec, source)
    if source.starting in ("earliest", "latest"):
        return {**options, "startingOffsets": source.starting}
    try:
        time = datetime.fromisoformat(source.starting)
    except ValueError:
        raise OptionError(
            f"source {source.name}: starting is earliest, latest or a time such as "
            f"2026-01-31T12:00:00Z, not {source.starting!r}"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return {
        **options,
        "startingTimestamp": str(int(time.timestamp() * 1000)),
        "startingOffsetsByTimestampStrategy": "latest",
    }
