"""Topic sinks in tests: the records that consumers see, and drivers that are killed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock.client import Consumer, ConsumerRecord, TopicPartition
from penstock.spark.progress import Batch, Progress, SourceOffsets

if TYPE_CHECKING:
    import pytest

    from penstock.spark.sinks.topic.ledger import LedgerEntry
    from penstock.spark.sinks.topic.transactions import Transactions, Work

SOURCE = "clicks"


class Killed(BaseException):
    """Simulates the end of the driver: nothing is cleaned up after this."""


def client_of(bootstrap_servers: str) -> dict[str, str]:
    return {"bootstrap.servers": bootstrap_servers}


def committed(bootstrap_servers: str, topic: str) -> list[ConsumerRecord]:
    """Returns the records that a read_committed consumer sees, partition by partition."""
    with Consumer(
        bootstrap_servers=bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        partitions = [
            TopicPartition(topic, partition.partition)
            for partition in consumer.partitions_for(topic)
        ]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        result: list[ConsumerRecord] = []
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            result += consumer.poll(0.02)
    return sorted(result, key=lambda record: (record.partition, record.offset))


def values_of(bootstrap_servers: str, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in committed(bootstrap_servers, topic)]


def at(offset: int) -> Progress:
    """Returns the progress of a source with one partition."""
    return {SOURCE: SourceOffsets({TopicPartition("in", 0): offset}, {"in": "id-1"}, SOURCE)}


def batch(start: int, end: int, batch_id: int = 0, query_id: str = "q") -> Batch:
    return Batch(query_id, batch_id, at(start), at(end))


@contextmanager
def dying(
    transactions: "Transactions", patch: "pytest.MonkeyPatch", step: str
) -> Iterator[Mapping[str, bool]]:
    """Simulates the kill of the driver before or after a step of the next transaction.

    Steps are `before:begin`, `after:rows`, `before:ledger`, `after:commit` and so on. `happened` is
    set when the step is reached. The block ends there, without cleanup.
    """
    when, _, name = step.partition(":")
    happened = {"happened": False}
    run = transactions.run

    def die() -> None:
        happened["happened"] = True
        raise Killed(step)

    def run_and_die(work: "Work", entries: "Mapping[str, LedgerEntry | None]") -> None:
        producer = transactions._producer
        assert producer is not None
        owner, method = {
            "begin": (producer, "begin_transaction"),
            "rows": (producer, "flush"),
            "ledger": (transactions.ledger, "put"),
            "commit": (producer, "commit_transaction"),
        }[name]
        real = getattr(owner, method)

        def call(*arguments: object, **named: object) -> None:
            if when == "before":
                die()
            real(*arguments, **named)
            die()

        with patch.context() as patched:
            patched.setattr(owner, method, call)
            patched.setattr(transactions, "_abort", lambda: False)
            try:
                run(work, entries)
            finally:
                producer.close(0)

    with patch.context() as patched:
        patched.setattr(transactions, "run", run_and_die)
        with suppress(Killed):
            yield happened
