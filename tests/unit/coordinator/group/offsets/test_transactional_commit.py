"""TxnOffsetCommit: offsets that are committed with a producer's transaction (P4)."""

import pytest

from penstock.coordinator.group.config import GroupConfig
from penstock.coordinator.group.events import PartitionsDeleted, TransactionEnded
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.fields import ZERO_UUID
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.offset_commit import OffsetCommitResponse
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.support.coordinator.consumer_groups import Consumer, consumer_host, reconcile
from tests.support.coordinator.groups import (
    GroupHost,
    commit_errors,
    commit_request,
    committed,
    id_of,
    stable_group,
)

PRODUCER, EPOCH = 7, 3
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
BY_ID = 6


@pytest.fixture
def host() -> GroupHost:
    return GroupHost()


def txn_commit(
    host: GroupHost,
    offset: int,
    *,
    topic: str = "t",
    partition: int = 0,
    producer_id: int = PRODUCER,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: str | None = None,
    version: int = 5,
) -> int:
    """Returns the error of the partition."""
    request = TxnOffsetCommitRequest(
        "tx",
        "g",
        producer_id,
        EPOCH,
        generation,
        member_id,
        instance_id,
        [
            TxnOffsetCommitRequestTopic(
                topic,
                (host.topics.topic_id(topic) or ZERO_UUID) if version >= BY_ID else ZERO_UUID,
                [TxnOffsetCommitRequestPartition(partition, offset, 4, metadata)],
            )
        ],
    )
    response = host.request(request, TxnOffsetCommitResponse, version)
    return response.topics[0].partitions[0].error_code


def end(host: GroupHost, *, commit: bool, producer_id: int = PRODUCER) -> None:
    host.shard.apply(TransactionEnded(producer_id, commit))


def stable(host: GroupHost, *partitions: int) -> list[tuple[int, int]]:
    """Returns the offsets and errors of a fetch with `require_stable`."""
    topics = [OffsetFetchRequestTopics("t", partition_indexes=list(partitions))]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup("g", topics=topics if partitions else None)],
        require_stable=True,
    )
    response = host.request(request, OffsetFetchResponse, 9)
    return [
        (p.committed_offset, p.error_code)
        for topic in response.groups[0].topics
        for p in topic.partitions
    ]


@pytest.mark.parametrize("version", [0, 3, 5, BY_ID])
def test_offsets_apply_when_the_transaction_commits(host: GroupHost, version: int) -> None:
    assert txn_commit(host, 10, version=version) == 0
    assert committed(host) == {}
    assert stable(host, 0, 1) == [(-1, UNSTABLE), (-1, 0)]
    end(host, commit=True)
    assert committed(host) == {("t", 0): 10}
    assert stable(host, 0) == [(10, 0)]
    assert stable(host) == [(10, 0)]


def test_offsets_of_an_aborted_transaction_are_dropped(host: GroupHost) -> None:
    commit = commit_request({("t", 0): 4})
    assert commit_errors(host.request(commit, OffsetCommitResponse, 9)) == [0]
    assert txn_commit(host, 10) == 0
    assert committed(host) == {("t", 0): 4}
    assert stable(host) == [(-1, UNSTABLE)]
    end(host, commit=False)
    assert stable(host) == [(4, 0)]


def test_a_later_plain_commit_wins_over_the_transaction(host: GroupHost) -> None:
    txn_commit(host, 10)
    host.request(commit_request({("t", 0): 4}), OffsetCommitResponse, 9)
    end(host, commit=True)
    assert committed(host) == {("t", 0): 4}


def test_invalid_requests_are_rejected(host: GroupHost) -> None:
    small = GroupHost(GroupConfig(offset_metadata_max_bytes=3))
    assert txn_commit(small, 1, metadata="four") == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert txn_commit(small, 1, metadata="3..") == 0
    assert txn_commit(host, 1, topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert txn_commit(host, 1, partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert txn_commit(host, 1, topic="none", version=BY_ID) == ErrorCode.UNKNOWN_TOPIC_ID
    assert txn_commit(host, 1, generation=1, member_id="m") == ErrorCode.ILLEGAL_GENERATION
    assert "g" not in host.shard.groups
    assert not host.shard.offsets.pending


def test_a_classic_member_must_have_the_current_generation(host: GroupHost) -> None:
    first, _ = stable_group(host, 2)
    generation = host.classic().generation
    assert txn_commit(host, 1, generation=generation, member_id=first) == 0
    assert txn_commit(host, 1) == 0, "clients of old do not say who they are"
    wrong = txn_commit(host, 1, generation=generation + 1, member_id=first)
    assert wrong == ErrorCode.ILLEGAL_GENERATION
    assert txn_commit(host, 1, member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert txn_commit(host, 1, member_id=first) == ErrorCode.ILLEGAL_GENERATION
    unknown = txn_commit(host, 1, generation=generation, member_id=first, instance_id="i")
    assert unknown == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_consumer_group_member_must_own_the_partition() -> None:
    host = consumer_host()
    member = Consumer(host, "m1")
    member.join()
    reconcile(member)
    epoch = host.consumer().members["m1"].member_epoch
    assert txn_commit(host, 1, generation=epoch, member_id="m1") == 0
    assert txn_commit(host, 1) == 0
    late = txn_commit(host, 1, generation=epoch + 1, member_id="m1")
    assert late == ErrorCode.ILLEGAL_GENERATION
    assert txn_commit(host, 1, generation=epoch, member_id="x") == ErrorCode.UNKNOWN_MEMBER_ID
    old = txn_commit(host, 1, generation=epoch - 1, member_id="m1")
    assert old == ErrorCode.ILLEGAL_GENERATION


# --- groups with pending offsets


def test_a_group_with_an_open_transaction_is_not_removed(host: GroupHost) -> None:
    """Removal would lose the offset that the transaction is about to commit."""
    check_ms, retention_ms = 600_000, host.config.offsets_retention_ms
    host.request(commit_request({("t", 0): 4}), OffsetCommitResponse, 9)
    txn_commit(host, 10)
    host.advance(retention_ms + check_ms)
    assert committed(host) == {("t", 0): 4}
    txn_commit(host, 11, partition=1, producer_id=8)
    end(host, commit=False)
    host.advance(check_ms)
    assert committed(host) == {}
    assert "g" in host.shard.groups
    end(host, commit=False, producer_id=8)
    host.advance(check_ms)
    assert host.shard.groups == {}


def test_deletions_remove_pending_offsets(host: GroupHost) -> None:
    txn_commit(host, 10)
    partition = OffsetDeleteRequestPartition(0)
    request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", [partition])])
    assert host.request(request, OffsetDeleteResponse).error_code == 0
    end(host, commit=True)
    assert committed(host) == {}
    txn_commit(host, 10)
    host.event(PartitionsDeleted(frozenset({TopicPartition("t", 0)})))
    end(host, commit=True)
    assert committed(host) == {}
    txn_commit(host, 10)
    txn_commit(host, 11, partition=1)
    deleted = host.request(DeleteGroupsRequest(["g"]), DeleteGroupsResponse)
    assert deleted.results[0].error_code == 0
    assert host.shard.groups == {}
    end(host, commit=True)
    assert committed(host) == {}


def test_a_fetch_by_topic_id_reports_unstable_offsets(host: GroupHost) -> None:
    txn_commit(host, 10)
    topics = [OffsetFetchRequestTopics(topic_id=id_of("t"), partition_indexes=[0])]
    group = OffsetFetchRequestGroup("g", topics=topics)
    for require_stable, error in ((True, UNSTABLE), (False, 0)):
        request = OffsetFetchRequest(groups=[group], require_stable=require_stable)
        response = host.request(request, OffsetFetchResponse, 10)
        assert response.groups[0].topics[0].partitions[0].error_code == error


def test_a_failed_write_leaves_nothing_pending(host: GroupHost) -> None:
    host.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert txn_commit(host, 10) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not host.shard.offsets.pending
    assert txn_commit(host, 10) == 0
