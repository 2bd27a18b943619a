"""The options with which a pipeline's sources are read, as streams and to ask the broker."""

import json
from datetime import UTC, datetime

from penstock.spark.errors import OptionError
from penstock.spark.pipeline.model import PipelineSpec, SourceSpec
from penstock.spark.progress import SourceOffsets


def producer_options_of(spec: PipelineSpec) -> dict[str, str]:
    """The settings that only producers have: sources would not know them."""
    from penstock.client.settings import ConsumerOptions, ProducerOptions, settings_of

    names = settings_of(ProducerOptions).keys() - settings_of(ConsumerOptions).keys()
    found = {name.replace(".", "_"): value for name, value in spec.kafka.items()}
    return {name: value for name, value in found.items() if name in names}


def options_of(spec: PipelineSpec, source: SourceSpec) -> dict[str, str]:
    """What is to be read, without where to start."""
    from penstock.spark.decode.options import source_options

    writing = producer_options_of(spec)
    found = {
        f"kafka.{name}": value
        for name, value in spec.client_settings.items()
        if name.replace(".", "_") not in writing
    }
    found["kafka.isolation.level"] = spec.kafka.get("isolation.level", "read_committed")
    found["failOnDataLoss"] = "true"
    found |= source_options(source)
    found["sourceName"] = source.name
    found["includeHeaders"] = str(source.headers).lower()
    if source.pattern is not None:
        found["subscribePattern"] = source.pattern
    else:
        found["subscribe"] = ",".join(source.topics)
    return found


def stream_options_of(
    spec: PipelineSpec, source: SourceSpec, start: SourceOffsets, limit: int
) -> dict[str, str]:
    """For `readStream`. `limit`: records of a batch."""
    return {
        "maxOffsetsPerTrigger": str(limit),
        **options_of(spec, source),
        "startingOffsets": json.dumps(start.to_json()),
    }


def range_options_of(
    spec: PipelineSpec, source: SourceSpec, start: SourceOffsets, end: SourceOffsets
) -> dict[str, str]:
    """For `read`: the records between these offsets. A partition without a start is a new one."""
    first = {partition: start.offsets.get(partition, 0) for partition in end.offsets}
    return {
        **options_of(spec, source),
        "startingOffsets": json.dumps(SourceOffsets(first, end.topic_ids).to_json()),
        "endingOffsets": json.dumps(SourceOffsets(end.offsets, end.topic_ids).to_json()),
    }


def starting_options_of(spec: PipelineSpec, source: SourceSpec) -> dict[str, str]:
    """With where a source begins that has never been read: `starting`."""
    found = options_of(spec, source)
    if source.starting in ("earliest", "latest"):
        return {**found, "startingOffsets": source.starting}
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
        **found,
        "startingTimestamp": str(int(time.timestamp() * 1000)),
        "startingOffsetsByTimestampStrategy": "latest",
    }
