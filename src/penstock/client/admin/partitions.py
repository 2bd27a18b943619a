"""Partitions: their offsets, records, leaders and replicas."""

from collections.abc import Mapping, Sequence
from typing import Literal

from penstock.client.admin.advice import explain, not_served
from penstock.client.admin.locating import Locator
from penstock.client.admin.model_topics import ListedOffset, OffsetSpec
from penstock.client.admin.routing import LEADER_CODES, by_topic
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.net.client.network_client import RequestBuilder
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_VERSION_OF_SPEC: dict[int, tuple[int, str]] = {
    OffsetSpec.MAX_TIMESTAMP: (7, "3.0"),
    OffsetSpec.EARLIEST_LOCAL: (8, "3.5"),
    OffsetSpec.LATEST_TIERED: (9, "3.9"),
    OffsetSpec.EARLIEST_PENDING_UPLOAD: (11, "4.2"),
}
"""The ListOffsets that knows it, and the first Kafka that has this one."""


class PartitionCalls(Locator):
    """Calls that go to the leaders of partitions."""

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records of partitions before an offset; -1 is the high watermark.

        Returns the low watermarks: the smallest offsets that can be read from now on.
        """
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, some: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, int | KafkaError]:
            topics = [
                DeleteRecordsTopic(
                    topic,
                    [
                        DeleteRecordsPartition(index, offsets[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(some).items()
            ]
            response = await self._request(
                "delete_records",
                node_id,
                DeleteRecordsRequest(topics, self._left_ms(deadline_ms)),
                DeleteRecordsResponse,
                deadline_ms,
            )
            answers: dict[TopicPartition, int | KafkaError] = {}
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    if each.error_code == ErrorCode.NONE:
                        answers[partition] = each.low_watermark
                    else:
                        answers[partition] = _failure(each.error_code, partition)
            return answers

        return await self._each(
            "delete_records",
            offsets,
            self._leaders("delete_records", deadline_ms),
            send,
            deadline_ms,
            retriable=LEADER_CODES,
        )

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets of partitions: by name (`OffsetSpec`), or the first from a time on (ms).

        LATEST is the high watermark, or the last stable offset with `read_committed`.
        """
        deadline_ms = self._deadline(timeout_ms)
        isolation = 1 if isolation_level == "read_committed" else 0

        async def send(
            node_id: int, some: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
            answers: dict[TopicPartition, ListedOffset | KafkaError] = {}
            needs = {partition: _needs(specs[partition]) for partition in some}
            asked: list[TopicPartition] = []

            def make(version: int) -> ListOffsetsRequest:
                asked[:] = [each for each in some if needs[each][0] <= version]
                return ListOffsetsRequest(
                    -1,
                    isolation,
                    [
                        ListOffsetsTopic(
                            topic,
                            [
                                ListOffsetsPartition(
                                    index, timestamp=int(specs[TopicPartition(topic, index)])
                                )
                                for index in indexes
                            ],
                        )
                        for topic, indexes in by_topic(asked).items()
                    ],
                    self._left_ms(deadline_ms),
                )

            response = await self._request(
                "list_offsets",
                node_id,
                RequestBuilder(ListOffsetsRequest, make),
                ListOffsetsResponse,
                deadline_ms,
                needs=(2, "0.11") if isolation else (1, "0.10.1"),
            )
            for partition in set(some) - set(asked):
                answers[partition] = self._too_old(node_id, specs[partition])
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    answers[partition] = _listed(partition, each)
            return answers

        return await self._each(
            "list_offsets",
            specs,
            self._leaders("list_offsets", deadline_ms),
            send,
            deadline_ms,
            retriable=LEADER_CODES,
        )

    def _too_old(self, node_id: int, spec: int) -> UnsupportedVersionError:
        about = f"the offset {OffsetSpec(spec).name}"
        return not_served(about, ApiKey.LIST_OFFSETS, self._name(node_id), _needs(spec))


def _needs(spec: int) -> tuple[int, str]:
    return _VERSION_OF_SPEC.get(spec, (1, "0.10.1"))


def _listed(
    partition: TopicPartition, answer: ListOffsetsPartitionResponse
) -> ListedOffset | KafkaError:
    if answer.error_code != ErrorCode.NONE:
        return _failure(answer.error_code, partition)
    epoch = None if answer.leader_epoch < 0 else answer.leader_epoch
    return ListedOffset(answer.offset, answer.timestamp, epoch)


def _failure(code: int, partition: TopicPartition) -> KafkaError:
    return explain(code, f"partition {partition}")
