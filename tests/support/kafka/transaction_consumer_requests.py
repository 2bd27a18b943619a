"""Responses to consumers about transactions, to compare our broker with Kafka's."""

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.records.batch import split
from tests.support.broker.in_process import WireClient
from tests.support.coordinator.transaction_client import (
    READ_COMMITTED,
    Generation,
    TxnProducer,
    latest,
    wait_for_state,
)
from tests.support.protocol.requests import fetch_request, make_topic

Results = dict[str, object]
TOPIC = "in-transactions"
_LAST_WITH_NAMES = 5


def name_of(code: int) -> str:
    return ErrorCode(code).name


def offsets(client: WireClient) -> Results:
    """Offsets in transactions: who may commit them, and who sees them when."""
    result: Results = {}
    for version in range(_LAST_WITH_NAMES + 1):
        name = f"offsets-{version}"
        producer = TxnProducer.started(client, name, Generation.V1)

        def commit(
            what: str,
            topic: str = TOPIC,
            partition: int = 0,
            *,
            group: str = name,
            metadata: str | None = "note",
            change: tuple[int, int] = (0, 0),
            member: tuple[str, int] = ("", -1),
            producer: TxnProducer = producer,
            version: int = version,
        ) -> None:
            request = TxnOffsetCommitRequest(
                producer.transactional_id,
                group,
                producer.producer_id + change[0],
                producer.epoch + change[1],
                topics=[
                    TxnOffsetCommitRequestTopic(
                        topic,
                        partitions=[
                            TxnOffsetCommitRequestPartition(
                                partition, 5, committed_metadata=metadata
                            )
                        ],
                    )
                ],
            )
            if version >= 3:
                request.member_id, request.generation_id_or_member_epoch = member
            response = client.request(request, version)
            result[f"{what}, {version}"] = [
                (topic.name, part.partition_index, name_of(part.error_code))
                for topic in response.topics
                for part in topic.partitions
            ]

        def fetch(what: str, *, name: str = name, version: int = version) -> None:
            for stable in (False, True):
                for topics in ([OffsetFetchRequestTopic(TOPIC, [0, 1])], None):
                    request = OffsetFetchRequest(name, topics)
                    request.require_stable = stable
                    response = client.request(request, 7)
                    result[f"{what}, {version}, {stable}, {topics is None}"] = sorted(
                        (
                            topic.name,
                            partition.partition_index,
                            name_of(partition.error_code),
                            partition.committed_offset,
                            partition.committed_leader_epoch,
                            partition.metadata,
                        )
                        for topic in response.topics
                        for partition in topic.partitions
                    )

        if version < _LAST_WITH_NAMES:
            commit("not added")
        for is_added in (False, True):
            if is_added:
                assert producer.add_offsets(name) is ErrorCode.NONE
            when = "added" if is_added else "before"
            if version >= _LAST_WITH_NAMES and not is_added:
                continue
            commit(f"{when}, unknown topic", "nowhere")
            commit(f"{when}, unknown partition", TOPIC, 9)
            commit(f"{when}, no group", group="")
            commit(f"{when}, another's", change=(10**6, 0))
            commit(f"{when}, later epoch", change=(0, 1))
            commit(f"{when}, long note", metadata="x" * 5000)
            commit(f"{when}, no note", metadata=None)
            commit(f"{when}, a stranger", member=("stranger", 3))
            commit(f"{when}, a member without generation", member=("stranger", -1))
            commit(f"{when}, a generation without member", member=("", 3))
        fetch("nothing")
        commit("good")
        fetch("open")
        plain = OffsetCommitRequest(
            name,
            topics=[
                OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(1, 8)])
            ],
        )
        client.request(plain, 8)
        fetch("open, and another")
        delete = OffsetDeleteRequest(
            name, [OffsetDeleteRequestTopic(TOPIC, [OffsetDeleteRequestPartition(1)])]
        )
        result[f"delete, {version}"] = name_of(client.request(delete, 0).error_code)
        fetch("open, and deleted")
        end = producer.end(commit=version % 2 == 0)
        result[f"ended, {version}"] = end.name
        wait_for_state(client, name, "CompleteCommit" if version % 2 == 0 else "CompleteAbort")
        fetch("ended")
    return result


def reading(client: WireClient) -> Results:
    """Responses to consumers of a partition with transactions of all kinds."""
    topic = "read-in-transactions"
    make_topic(client, topic)
    producer = TxnProducer.started(client, "reading-1", Generation.V1)
    two = TxnProducer.started(client, "reading-2", Generation.V2)
    result: Results = {}

    def look(when: str) -> None:
        high_watermark = latest(client, topic, 0)
        result[f"{when}, latest"] = (high_watermark, latest(client, topic, READ_COMMITTED))
        for version in (4, 11, 12):
            for isolation in (0, READ_COMMITTED):
                for offset in range(high_watermark + 2):
                    request = fetch_request({topic: {0: offset}}, isolation=isolation)
                    data = client.request(request, version).responses[0].partitions[0]
                    aborted = data.aborted_transactions
                    result[f"{when}, fetch {version} {isolation} {offset}"] = (
                        name_of(data.error_code),
                        data.high_watermark,
                        data.last_stable_offset,
                        data.log_start_offset if version >= 5 else None,
                        None if aborted is None else sorted(a.first_offset for a in aborted),
                        [header.base_offset for _, header in split(bytes(data.records or b""))],
                    )
        for isolation in (0, READ_COMMITTED):
            for timestamp in (-1, -2, 0):
                topic_request = ListOffsetsTopic(
                    topic, [ListOffsetsPartition(0, timestamp=timestamp)]
                )
                listing = ListOffsetsRequest(-1, isolation, [topic_request])
                listed = client.request(listing, 7).topics[0].partitions[0]
                result[f"{when}, list {isolation} {timestamp}"] = (
                    name_of(listed.error_code),
                    listed.offset,
                    listed.leader_epoch,
                )

    look("empty")
    producer.write(topic, b"a", b"b")
    look("one is open")
    two.write(topic, b"c")
    producer.write(topic, b"d")
    look("both are open")
    two.abort()
    look("the second is aborted")
    two.write(topic, b"e")
    producer.commit()
    look("the first is committed")
    two.commit()
    look("all have ended")
    producer.write(topic, b"f")
    delete = DeleteRecordsTopic(topic, [DeleteRecordsPartition(0, -1)])
    deleted = client.request(DeleteRecordsRequest([delete], 5000), 2).topics[0].partitions[0]
    result["deleted"] = (name_of(deleted.error_code), deleted.low_watermark)
    look("the open one is deleted")
    producer.write(topic, b"g")
    producer.abort()
    look("the deleted one is aborted")
    return result
