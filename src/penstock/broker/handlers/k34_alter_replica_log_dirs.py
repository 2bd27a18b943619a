"""AlterReplicaLogDirs (34), versions 0 to 2: moves partitions between directories (S1).

The response is sent when the move has begun; DescribeLogDirs reports its progress.
"""

from dataclasses import dataclass

from penstock.broker.pacer import Pacer, Steps
from penstock.broker.replica.log_mover import LogMover
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from penstock.security.acl import AclOperation


@dataclass(frozen=True, slots=True)
class Context:
    pacer: Pacer
    authorizer: RequestAuthorizer
    log_mover: LogMover


def handle(context: Context, request: Request, body: AlterReplicaLogDirsRequest) -> HandlerResult:
    return context.pacer.run(_steps(context, request, body))


def _steps(context: Context, request: Request, body: AlterReplicaLogDirsRequest) -> Steps[Response]:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in body.dirs:
        for topic in directory.topics:
            yield
            result = topics.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic.name))
            for index in topic.partitions:
                yield
                code = _move(context, request, TopicPartition(topic.name, index), directory.path)
                result.partitions.append(AlterReplicaLogDirPartitionResult(index, code))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _move(context: Context, request: Request, key: TopicPartition, path: str) -> ErrorCode:
    try:
        context.authorizer.require(request.session, AclOperation.ALTER)
        context.log_mover.start(key, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
