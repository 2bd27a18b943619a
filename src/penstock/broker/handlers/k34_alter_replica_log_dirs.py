"""AlterReplicaLogDirs (34): versions 0 to 2: partitions move to another folder of `log.dirs` (S1).

The answer comes when the move has begun; DescribeLogDirs tells how far it is.
"""

from typing import TYPE_CHECKING

from penstock.broker.request import HandlerResult, Request
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from penstock.security.acl import AclOperation

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: AlterReplicaLogDirsRequest) -> HandlerResult:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for folder in body.dirs:
        for topic in folder.topics:
            result = topics.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic.name))
            for index in topic.partitions:
                code = _move(broker, request, TopicPartition(topic.name, index), folder.path)
                result.partitions.append(AlterReplicaLogDirPartitionResult(index, code))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _move(broker: "Broker", request: Request, key: TopicPartition, path: str) -> ErrorCode:
    try:
        broker.authorizer.require(request.session, AclOperation.ALTER)
        broker.log_mover.start(key, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
