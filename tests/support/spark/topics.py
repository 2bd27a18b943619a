"""Creates, fills, truncates and deletes topics for tests of the Spark source."""

from collections.abc import Mapping
from typing import Self

from penstock.client import Admin, Producer
from penstock.client.admin import NewTopic
from penstock.core.ids import TopicPartition


class Topics:
    """Operations on topics, through Penstock's clients."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._admin = Admin(bootstrap_servers=bootstrap_servers)
        self._producer = Producer(bootstrap_servers=bootstrap_servers, linger_ms=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._producer.close()
        self._admin.close()

    def create(
        self, name: str, partitions: int = 1, configs: Mapping[str, str | None] | None = None
    ) -> None:
        self._admin.create_topics([NewTopic(name, partitions, 1, configs=configs)])

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])

    def add_partitions(self, name: str, total: int) -> None:
        self._admin.create_partitions({name: total})

    def delete_records(self, name: str, partition: int, before: int) -> None:
        self._admin.delete_records({TopicPartition(name, partition): before})

    def fill(
        self,
        name: str,
        counts: Mapping[int, int],
        *,
        start: int = 0,
        timestamp: int | None = None,
        headers: bool = False,
    ) -> None:
        """Produces records to each partition: value `<partition>-<number>`, numbers from `start`.

        `timestamp` is that of the first record; each following one is 1 ms later.
        """
        waiting = [
            self._producer.send(
                name,
                f"{partition}-{number}".encode(),
                key=None if number % 3 == 0 else f"k{number}".encode(),
                partition=partition,
                timestamp=None if timestamp is None else timestamp + number - start,
                headers=[("n", str(number).encode()), ("none", None)] if headers else [],
            )
            for partition, count in counts.items()
            for number in range(start, start + count)
        ]
        for future in waiting:
            future.result(30)

    def in_transaction(
        self, name: str, partition: int, count: int, *, start: int = 0, commit: bool = True
    ) -> None:
        """Produces records in one transaction, which is committed or aborted."""
        with Producer(
            bootstrap_servers=self.bootstrap_servers, transactional_id=f"{name}-{partition}"
        ) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(start, start + count):
                producer.send(name, f"{partition}-{number}".encode(), partition=partition)
            if commit:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
