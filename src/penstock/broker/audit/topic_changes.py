"""Changes of topics and partitions, as their requests and responses say."""

from collections.abc import Iterator
from typing import Any

from penstock.broker.audit.changed_resource import ChangedResource, Details
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
)
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


def describe_create_topics(
    body: CreateTopicsRequest, response: CreateTopicsResponse
) -> Iterator[ChangedResource]:
    results = {result.name: result for result in response.topics}
    for topic in body.topics:
        result = results.get(topic.name)
        details: Details = {
            "partitions": topic.num_partitions,
            "replication_factor": topic.replication_factor,
        }
        if topic.assignments:
            details["assignments"] = {
                str(assignment.partition_index): assignment.broker_ids
                for assignment in topic.assignments
            }
        if topic.configs:
            details["configs"] = {config.name: config.value for config in topic.configs}
        yield ChangedResource("TOPIC", topic.name, details, result.error_code if result else 0)


def describe_delete_topics(
    body: DeleteTopicsRequest, response: DeleteTopicsResponse
) -> Iterator[ChangedResource]:
    if not response.responses:
        for topic in body.topics:
            yield ChangedResource("TOPIC", topic.name or str(topic.topic_id), {})
        for name in body.topic_names:
            yield ChangedResource("TOPIC", name, {})
    for result in response.responses:
        name = result.name or str(result.topic_id)
        yield ChangedResource("TOPIC", name, {}, result.error_code)


def describe_create_partitions(
    body: CreatePartitionsRequest, response: CreatePartitionsResponse
) -> Iterator[ChangedResource]:
    codes = {result.name: result.error_code for result in response.results}
    for topic in body.topics:
        details: Details = {"partitions": topic.count}
        if topic.assignments:
            details["assignments"] = [assignment.broker_ids for assignment in topic.assignments]
        yield ChangedResource("TOPIC", topic.name, details, codes.get(topic.name, 0))


def describe_delete_records(
    body: DeleteRecordsRequest, response: DeleteRecordsResponse
) -> Iterator[ChangedResource]:
    codes = {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
    for topic in body.topics:
        offsets = {partition.partition_index: partition.offset for partition in topic.partitions}
        yield from _by_code("before_offsets", topic.name, offsets, codes)


def describe_alter_reassignments(
    body: AlterPartitionReassignmentsRequest, response: AlterPartitionReassignmentsResponse
) -> Iterator[ChangedResource]:
    codes = {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.responses
        for partition in topic.partitions
    }
    for topic in body.topics:
        replicas = {
            partition.partition_index: partition.replicas or "cancelled"
            for partition in topic.partitions
        }
        yield from _by_code("replicas", topic.name, replicas, codes, response.error_code)


def describe_elect_leaders(
    body: ElectLeadersRequest, response: ElectLeadersResponse
) -> Iterator[ChangedResource]:
    kind = "unclean" if body.election_type else "preferred"
    codes = {
        (topic.topic, partition.partition_id): partition.error_code
        for topic in response.replica_election_results
        for partition in topic.partition_result
    }
    if body.topic_partitions is None and not codes:
        yield ChangedResource("CLUSTER", "", {"election": kind}, response.error_code)
    for name in dict.fromkeys(topic for topic, _ in codes):
        elected = {partition: kind for topic, partition in codes if topic == name}
        yield from _by_code("elections", name, elected, codes)
    for topic in body.topic_partitions or () if not codes else ():
        elected = dict.fromkeys(topic.partitions, kind)
        yield from _by_code("elections", topic.topic, elected, codes, response.error_code)


def describe_alter_log_dirs(
    body: AlterReplicaLogDirsRequest, response: AlterReplicaLogDirsResponse
) -> Iterator[ChangedResource]:
    codes = {
        (topic.topic_name, partition.partition_index): partition.error_code
        for topic in response.results
        for partition in topic.partitions
    }
    for log_dir in body.dirs:
        for topic in log_dir.topics:
            directories = dict.fromkeys(topic.partitions, log_dir.path)
            yield from _by_code("directories", topic.name, directories, codes)


def _by_code(
    what: str,
    topic: str,
    partitions: dict[int, Any],
    codes: dict[tuple[str, int], int],
    default: int = 0,
) -> Iterator[ChangedResource]:
    """Yields the partitions of a topic together that have the same result."""
    by_code: dict[int, Details] = {}
    for partition, value in partitions.items():
        code = codes.get((topic, partition), default)
        by_code.setdefault(code, {})[str(partition)] = value
    for code, values in by_code.items():
        yield ChangedResource("TOPIC", topic, {what: values}, code)
