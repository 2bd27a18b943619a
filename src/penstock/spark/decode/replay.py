"""Replaying dead letters: they are sent to their topics again, exactly once, after a fix.

Progress is stored in the ledger, in the same Kafka transaction as the records: a crash at any point
neither loses nor duplicates one. Every consumer of a topic receives a record that is sent to it
again; if that must not happen, `to` names another topic for the pipeline to read.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.spark.clients import describe_topic
from penstock.spark.decode.dead_letters import DeadLetter
from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import REPLAY, PipelineSpec
from penstock.spark.sinks.topic.ledger import check_destination

if TYPE_CHECKING:
    from penstock.client.producer.producer import Producer

REPLAYED_FROM = "penstock.replayed-from"
"""A header: `<topic>-<partition>@<offset>` of the record that could not be read."""

CHUNK_RECORDS = 500
CHUNK_BYTES = 8 << 20
"""The limits of one transaction; a larger record has its own."""


OnStep = Callable[[str], None]
"""Called with the name of each step that was done, so that tests can end the process there."""


@dataclass(frozen=True)
class ReplayOptions:
    """The options of `penstock pipeline replay-dlq`."""

    to: str | None
    """The topic to send to, instead of the topics that the records came from."""
    limit: int | None
    """The maximum number of records to send."""
    dry_run: bool
    """Whether records are only counted."""
    on_step: OnStep


@dataclass
class ReplayResult:
    """What was sent, or would be sent without `dry_run`."""

    replayed: int = 0
    by_reason: Counter[str] = field(default_factory=Counter)
    by_topic: Counter[str] = field(default_factory=Counter)
    """By the topic that they were sent to."""
    repeated: int = 0
    """Dead letters of a record that was already sent: several sinks could not read it."""
    foreign: int = 0
    """Records of the dead-letter topic that belong to other pipelines, or are no dead letters."""
    is_dry_run: bool = False

    def count(self, letters: Iterable[DeadLetter], to: str | None) -> None:
        """Adds dead letters that were sent, to `to` or to their own topics."""
        for letter in letters:
            self.replayed += 1
            self.by_reason[letter.reason] += 1
            self.by_topic[to or letter.topic] += 1


def replay(
    spec: PipelineSpec,
    *,
    to: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    on_step: OnStep = lambda step: None,
) -> ReplayResult:
    """Sends the pipeline's dead letters that exist now and were not sent before.

    The arguments are those of `ReplayOptions`. Records that still cannot be read become new dead
    letters, for the next call.
    """
    letters = spec.dead_letters
    options = ReplayOptions(to, limit, dry_run, on_step)
    if letters is not None and letters.topic is not None:
        from penstock.spark.decode.replay_topic import replay_topic

        return replay_topic(spec, letters.topic, options)
    if letters is not None and letters.table is not None:
        from penstock.spark.decode.replay_table import replay_table

        return replay_table(spec, letters.table, options)
    raise PipelineError(
        f"pipeline {spec.name} has no dead-letter topic or table: there is nothing to replay"
    )


def replay_key(spec: PipelineSpec) -> str:
    """Returns the key of the ledger, which is also the group that shows a topic's lag."""
    return f"{spec.name}.{REPLAY}"


class ReplayTargets:
    """The topics that dead letters are sent to, and their partitions.

    Topics are looked up with an admin client, because a producer would create a missing one.
    """

    def __init__(self, client: Mapping[str, str], to: str | None) -> None:
        self._client = client
        self._to = to
        self._partition_counts: dict[str, int] = {}

    def send(self, producer: "Producer", letters: Sequence[DeadLetter]) -> None:
        """Sends each with its own key, value, headers and timestamp, to its own partition."""
        for letter in letters:
            topic = self._to or letter.topic
            headers = [header for header in letter.headers if header[0] != REPLAYED_FROM]
            origin = f"{letter.topic}-{letter.partition}@{letter.offset}"
            time = letter.timestamp
            has_partition = self._to is None and letter.partition < self._partition_count(topic)
            producer.send(
                topic,
                letter.value,
                key=letter.key,
                headers=[*headers, (REPLAYED_FROM, origin.encode())],
                partition=letter.partition if has_partition else None,
                timestamp=None if time is None else max(0, round(time.timestamp() * 1000)),
            )

    def check(self, letters: Iterable[DeadLetter]) -> None:
        """Raises `PipelineError` if a topic is missing or not allowed.

        To be called before a transaction.
        """
        for topic in {self._to or letter.topic for letter in letters}:
            check_destination(topic)
            self._partition_count(topic)

    def _partition_count(self, topic: str) -> int:
        if topic not in self._partition_counts:
            description = describe_topic(self._client, topic)
            if description is None:
                raise PipelineError(
                    f"dead letters cannot be sent to the topic {topic}, because it does not exist",
                    remedy="create it, or name another one with --to",
                )
            self._partition_counts[topic] = len(description.partitions)
        return self._partition_counts[topic]
