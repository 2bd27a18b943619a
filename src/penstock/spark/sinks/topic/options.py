"""The options of topic sinks of pipelines, and of `format("penstock")` as a sink."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from penstock.spark.errors import OptionError

_PREFIX: Final = "kafka."
_RESERVED: Final[Mapping[str, str]] = {
    "transactional.id": "it is built from the names of pipeline and sink",
    "key.serializer": "keys are written unchanged, strings as UTF-8",
    "value.serializer": "values are written unchanged, strings as UTF-8",
}
_REBUILDS: Final = ("refuse", "delete", "keep")

OnRebuild = Literal["refuse", "delete", "keep"]


@dataclass(frozen=True)
class TopicSinkOptions:
    """The options of a topic sink in a pipeline."""

    client: Mapping[str, str]
    """The producer's settings by Kafka's names, without `kafka.`."""
    on_rebuild: OnRebuild = "refuse"
    """What `rebuild` does with the existing records."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TopicSinkOptions":
        on_rebuild = "refuse"
        for name, value in options.items():
            if name.lower() == "onrebuild":
                on_rebuild = _parse_choice("onRebuild", value, _REBUILDS)
            elif not name.startswith(_PREFIX):
                raise OptionError(
                    f"there is no option {name} of a topic sink: it takes onRebuild "
                    f"({', '.join(_REBUILDS)}), and Kafka's settings of a producer as kafka.…"
                )
        return cls(client_settings(options), cast("OnRebuild", on_rebuild))


@dataclass(frozen=True)
class WriterOptions:
    """The options of `format("penstock")`, for write and writeStream."""

    client: Mapping[str, str]
    topic: str | None
    """The topic of all rows; None: the column `topic` names it."""
    pipeline: str | None
    """The name under which progress is stored: it makes a stream exactly-once."""
    is_transactional: bool
    accepts_new_checkpoint: bool
    checkpoint: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "WriterOptions":
        """Ignores options of Spark and of the source. Raises `OptionError` for wrong values."""
        lowered = {name.lower(): value for name, value in options.items()}
        client = client_settings(lowered)
        if not client.get("bootstrap.servers"):
            raise OptionError(
                "Option 'kafka.bootstrap.servers' must be specified: the addresses of some "
                "brokers, host:port,…"
            )
        topic = lowered.get("topic", "").strip() or None
        pipeline = lowered.get("pipeline")
        if pipeline is not None and not pipeline.strip():
            raise OptionError("option pipeline is empty", remedy="give the query a name that stays")
        transactional = _parse_choice(
            "transactional", lowered.get("transactional", "auto"), _CHOICES
        )
        if transactional == "false" and pipeline is not None:
            raise OptionError(
                "transactional=false conflicts with pipeline: progress is stored in the "
                "transactions",
                remedy="leave one of them out",
            )
        accept = _parse_choice(
            "newCheckpoint", lowered.get("newcheckpoint", "refuse"), _CHECKPOINTS
        )
        return cls(
            client,
            topic,
            pipeline,
            transactional == "true" or pipeline is not None,
            accept == "accept",
            lowered.get("checkpointlocation"),
        )


_CHOICES: Final = ("auto", "true", "false")
_CHECKPOINTS: Final = ("refuse", "accept")


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of the Kafka client; raises `OptionError` for those that are fixed."""
    settings = {
        name[len(_PREFIX) :]: value
        for name, value in options.items()
        if name.lower().startswith(_PREFIX)
    }
    for name, reason in _RESERVED.items():
        if name in settings:
            raise OptionError(
                f"Kafka option '{name}' is not supported: {reason}", remedy="leave it out"
            )
    return settings


def _parse_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value.lower() not in choices:
        raise OptionError(f"{name}={value}: it is one of {', '.join(choices)}")
    return value.lower()
