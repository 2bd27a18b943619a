"""C2, C3, C5: groups, committed offsets and offset lookup by timestamp with every client."""

from collections.abc import Callable

from tests.support.kafka_clients.confluent_client import ConfluentClient
from tests.support.kafka_clients.model import NO_OFFSET, Client, Record
from tests.support.kafka_clients.samples import PARTITIONS, START

RECORDS = [
    Record(b"key", b"value %d" % index, partition=index % 2, timestamp=START + index * 1000)
    for index in range(10)
]
MORE = [Record(b"key", b"more %d" % index, partition=index % 2) for index in range(4)]


def values(records: list[Record]) -> list[bytes]:
    return sorted(record.value or b"" for record in records)


def test_a_group_resumes_at_its_committed_offsets(
    client: Client, bootstrap: str, new_topic: Callable[..., str], witness: ConfluentClient
) -> None:
    """C3, C5: join, read, commit, read back what is committed; a second member starts there."""
    topic = new_topic(len(PARTITIONS))
    witness.produce(bootstrap, topic, RECORDS)
    first = client.consume_group(bootstrap, topic, f"group-of-{topic}", len(RECORDS))
    assert values(first.records) == values(RECORDS)
    assert first.committed == {0: 5, 1: 5}
    witness.produce(bootstrap, topic, MORE)
    second = client.consume_group(bootstrap, topic, f"group-of-{topic}", len(MORE))
    assert values(second.records) == values(MORE)
    assert second.committed == {0: 7, 1: 7}


def test_offsets_are_looked_up_by_timestamp(
    client: Client, bootstrap: str, new_topic: Callable[..., str], witness: ConfluentClient
) -> None:
    """C5: the first record that is not older than the timestamp; none after the last record."""
    topic = new_topic(len(PARTITIONS))
    witness.produce(bootstrap, topic, RECORDS)
    result = [
        client.offset_for_time(bootstrap, topic, 1, START + milliseconds)
        for milliseconds in (0, 1000, 1001, 9000, 9001)
    ]
    assert result == [0, 0, 1, 4, NO_OFFSET]
