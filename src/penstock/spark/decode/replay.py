"""Sends dead letters to their topics again, exactly once, after what was wrong is put right (D5).

Progress is kept in the ledger, in the same Kafka transaction as the records sent: a crash at any
point neither loses nor doubles one. Every reader of a topic sees a record that is sent to it again;
where that must not be, `to` names another topic for the pipeline to read.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.errors import ErrorCode, KafkaError
from penstock.spark.clients import new_admin
from penstock.spark.decode.dead_letters import DeadLetter
from penstock.spark.errors import PipelineError
from penstock.spark.pipeline.model import PipelineSpec

if TYPE_CHECKING:
    from penstock.client.producer.producer import Producer

REPLAYED_FROM = "penstock.replayed-from"
"""A header: `<topic>-<partition>@<offset>` of the record that could not be read."""

CHUNK_RECORDS = 500
CHUNK_BYTES = 8 << 20
"""Of one transaction; a larger record has one of its own."""

Step = Callable[[str], None]
"""Told what was just done; for tests that end the process there."""


@dataclass
class ReplayResult:
    """What was sent, or would be with `dry_run`."""

    replayed: int = 0
    by_reason: Counter[str] = field(default_factory=Counter)
    by_topic: Counter[str] = field(default_factory=Counter)
    """Where they went."""
    repeated: int = 0
    """Dead letters of a record that was sent already: several sinks could not read it."""
    foreign: int = 0
    """Records of the dead-letter topic that are of other pipelines, or no dead letters."""
    is_dry_run: bool = False


def replay(
    spec: PipelineSpec,
    *,
    to: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    step: Step = lambda done: None,
) -> ReplayResult:
    """Send what is in the pipeline's dead letters now, and was not sent before.

    `to`: to this topic instead of where they came from. `limit`: at most so many. What cannot be
    read again becomes a new dead letter, and is for the next call.
    """
    letters = spec.dead_letters
    if letters is not None and letters.topic is not None:
        from penstock.spark.decode.replay_topic import replay_topic

        return replay_topic(spec, letters.topic, to=to, limit=limit, dry_run=dry_run, step=step)
    if letters is not None and letters.table is not None:
        from penstock.spark.decode.replay_table import replay_table

        return replay_table(spec, letters.table, to=to, limit=limit, dry_run=dry_run, step=step)
    raise PipelineError(
        f"pipeline {spec.name} has no dead-letter topic or table: there is nothing to replay"
    )


def replay_key(spec: PipelineSpec) -> str:
    """Of the ledger, and the group of a dead-letter topic's lag."""
    return f"{spec.name}.replay-dlq"


def client_settings(spec: PipelineSpec) -> Mapping[str, str]:
    return {**spec.kafka, "bootstrap.servers": spec.bootstrap_servers}


class Targets:
    """The topics that records go to, and how many partitions they have.

    Asked of an admin client: a producer would make a topic that is gone.
    """

    def __init__(self, client: Mapping[str, str], to: str | None) -> None:
        self._client = client
        self._to = to
        self._partitions: dict[str, int] = {}

    def send(self, producer: "Producer", letters: Sequence[DeadLetter]) -> None:
        """Sends each with its own key, value, headers and time, to its own partition."""
        for letter in letters:
            topic = self._to or letter.topic
            headers = [each for each in letter.headers if each[0] != REPLAYED_FROM]
            origin = f"{letter.topic}-{letter.partition}@{letter.offset}"
            time = letter.timestamp
            is_known = self._to is None and letter.partition < self._count(topic)
            producer.send(
                topic,
                letter.value,
                key=letter.key,
                headers=[*headers, (REPLAYED_FROM, origin.encode())],
                partition=letter.partition if is_known else None,
                timestamp=None if time is None else max(0, round(time.timestamp() * 1000)),
            )

    def check(self, letters: Iterable[DeadLetter]) -> None:
        """Before a transaction begins: `PipelineError` for a topic that is gone."""
        for topic in {self._to or each.topic for each in letters}:
            self._count(topic)

    def _count(self, topic: str) -> int:
        if topic not in self._partitions:
            admin = new_admin(self._client)
            try:
                found = admin.describe_topics([topic])[topic]
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                raise PipelineError(
                    f"there is no topic {topic}, which dead letters are to be sent to: make it, "
                    "or name another one with --to"
                ) from error
            finally:
                admin.close()
            self._partitions[topic] = len(found.partitions)
        return self._partitions[topic]


def count(result: ReplayResult, letters: Iterable[DeadLetter], to: str | None) -> None:
    for letter in letters:
        result.replayed += 1
        result.by_reason[letter.reason] += 1
        result.by_topic[to or letter.topic] += 1
