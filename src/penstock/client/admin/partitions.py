"""Admin calls to the leaders of partitions: delete records, list offsets."""

from collections.abc import Mapping, Sequence
from typing import Literal

from penstock.client.admin.advice import broker_error, unsupported_error
from penstock.client.admin.api_driver import LEADER_CODES, group_by_topic
from penstock.client.admin.api_lookup import AdminApiLookup
from penstock.client.admin.model_topics import ListedOffset, OffsetSpec
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
"""The first version of ListOffsets with a spec, and the first Kafka with that version."""


class PartitionCalls(AdminApiLookup):
    """The calls to the leaders of partitions."""

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Deletes the records of partitions before an offset; -1 is the high watermark.

        Returns the new log start offsets.
        """
        deadline_ms = self._deadline(timeout_ms)

        async def send(
            node_id: int, keys: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, int | KafkaError]:
            topics = [
                DeleteRecordsTopic(
                    topic,
                    [
                        DeleteRecordsPartition(index, offsets[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in group_by_topic(keys).items()
            ]
            response = await self._request(
                "delete_records",
                node_id,
                DeleteRecordsRequest(topics, self._remaining_ms(deadline_ms)),
                DeleteRecordsResponse,
                deadline_ms,
            )
            results: dict[TopicPartition, int | KafkaError] = {}
            for topic in response.topics:
                for partition_data in topic.partitions:
                    partition = TopicPartition(topic.name, partition_data.partition_index)
                    if partition_data.error_code == ErrorCode.NONE:
                        results[partition] = partition_data.low_watermark
                    else:
                        results[partition] = _partition_error(partition_data.error_code, partition)
            return results

        return await self._request_each(
            "delete_records",
            offsets,
            self._partition_leaders("delete_records", deadline_ms),
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
        """Returns offsets of partitions: by `OffsetSpec`, or the first at or after a time (ms).

        LATEST is the high watermark, or the last stable offset with `read_committed`.
        """
        deadline_ms = self._deadline(timeout_ms)
        isolation = 1 if isolation_level == "read_committed" else 0

        async def send(
            node_id: int, keys: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
            results: dict[TopicPartition, ListedOffset | KafkaError] = {}
            required = {partition: _required_version(specs[partition]) for partition in keys}
            requested: list[TopicPartition] = []

            def make(version: int) -> ListOffsetsRequest:
                requested[:] = [key for key in keys if required[key][0] <= version]
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
                        for topic, indexes in group_by_topic(requested).items()
                    ],
                    self._remaining_ms(deadline_ms),
                )

            response = await self._request(
                "list_offsets",
                node_id,
                RequestBuilder(ListOffsetsRequest, make),
                ListOffsetsResponse,
                deadline_ms,
                required=(2, "0.11") if isolation else (1, "0.10.1"),
            )
            for partition in set(keys) - set(requested):
                results[partition] = self._unsupported_spec(node_id, specs[partition])
            for topic in response.topics:
                for partition_data in topic.partitions:
                    partition = TopicPartition(topic.name, partition_data.partition_index)
                    results[partition] = _listed(partition, partition_data)
            return results

        return await self._request_each(
            "list_offsets",
            specs,
            self._partition_leaders("list_offsets", deadline_ms),
            send,
            deadline_ms,
            retriable=LEADER_CODES,
        )

    def _unsupported_spec(self, node_id: int, spec: int) -> UnsupportedVersionError:
        subject = f"the offset {OffsetSpec(spec).name}"
        return unsupported_error(
            subject, ApiKey.LIST_OFFSETS, self._describe_node(node_id), _required_version(spec)
        )


def _required_version(spec: int) -> tuple[int, str]:
    return _VERSION_OF_SPEC.get(spec, (1, "0.10.1"))


def _listed(
    partition: TopicPartition, response: ListOffsetsPartitionResponse
) -> ListedOffset | KafkaError:
    if response.error_code != ErrorCode.NONE:
        return _partition_error(response.error_code, partition)
    epoch = None if response.leader_epoch < 0 else response.leader_epoch
    return ListedOffset(response.offset, response.timestamp, epoch)


def _partition_error(code: int, partition: TopicPartition) -> KafkaError:
    return broker_error(code, f"partition {partition}")
