"""Options of what writes to topics: of pipelines' topic sinks, and of `format("penstock")`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from penstock.spark.errors import OptionError

_PREFIX: Final = "kafka."
_OURS: Final[Mapping[str, str]] = {
    "transactional.id": "it is made from the names of pipeline and sink",
    "key.serializer": "keys are written as they are, strings as UTF-8",
    "value.serializer": "values are written as they are, strings as UTF-8",
}
_REBUILDS: Final = ("refuse", "delete", "keep")

OnRebuild = Literal["refuse", "delete", "keep"]


@dataclass(frozen=True)
class TopicSinkOptions:
    """Of a topic sink in a pipeline."""

    client: Mapping[str, str]
    """Kafka's settings of the producer, without `kafka.`."""
    on_rebuild: OnRebuild = "refuse"
    """What `rebuild` does with the records that are there."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TopicSinkOptions":
        on_rebuild = "refuse"
        for name, value in options.items():
            if name.lower() == "onrebuild":
                on_rebuild = _one_of("onRebuild", value, _REBUILDS)
            elif not name.startswith(_PREFIX):
                raise OptionError(
                    f"there is no option {name} of a topic sink: it takes onRebuild "
                    f"({', '.join(_REBUILDS)}), and Kafka's settings of a producer as kafka.…"
                )
        return cls(client_settings(options), cast("OnRebuild", on_rebuild))


@dataclass(frozen=True)
class WriterOptions:
    """Of `format("penstock")`, for write and writeStream."""

    client: Mapping[str, str]
    topic: str | None
    """Of all rows; else the column `topic` says it."""
    pipeline: str | None
    """The name under which progress is kept: it makes a stream exactly-once."""
    is_transactional: bool
    accepts_new_checkpoint: bool
    checkpoint: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "WriterOptions":
        """Options that belong to others (Spark, the source) are none of our business."""
        given = {name.lower(): value for name, value in options.items()}
        client = client_settings(given)
        if not client.get("bootstrap.servers"):
            raise OptionError(
                "Option 'kafka.bootstrap.servers' must be specified: the addresses of some "
                "brokers, host:port,…"
            )
        topic = given.get("topic", "").strip() or None
        pipeline = given.get("pipeline")
        if pipeline is not None and not pipeline.strip():
            raise OptionError("option pipeline is empty: give the query a name that stays")
        transactional = _one_of("transactional", given.get("transactional", "auto"), _CHOICES)
        if transactional == "false" and pipeline is not None:
            raise OptionError(
                "transactional=false does not go with pipeline: progress is kept in the "
                "transactions. Leave one of them out"
            )
        accept = _one_of("newCheckpoint", given.get("newcheckpoint", "refuse"), _CHECKPOINTS)
        return cls(
            client,
            topic,
            pipeline,
            transactional == "true" or pipeline is not None,
            accept == "accept",
            given.get("checkpointlocation"),
        )


_CHOICES: Final = ("auto", "true", "false")
_CHECKPOINTS: Final = ("refuse", "accept")


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """What options say to the Kafka client."""
    found = {
        name[len(_PREFIX) :]: value
        for name, value in options.items()
        if name.lower().startswith(_PREFIX)
    }
    for name, why in _OURS.items():
        if name in found:
            raise OptionError(f"Kafka option '{name}' is not supported: {why}; leave it out")
    return found


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise OptionError(f"{name}={value}: it is one of {', '.join(choices)}")
    return value.lower()
