"""DescribeLogDirs (35), versions 0 to 5: returns the directories of `log.dirs` (S1)."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.broker.request import HandlerResult, Request
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from penstock.security.acl import AclOperation
from penstock.storage.manager.log_dir_description import LogDirDescription
from penstock.storage.manager.log_manager import LogManager

_FIRST_WITH_ERROR = 3


@dataclass(frozen=True, slots=True)
class Context:
    logs: LogManager
    authorizer: RequestAuthorizer


def handle(context: Context, request: Request, body: DescribeLogDirsRequest) -> HandlerResult:
    if not context.authorizer.allows_cluster(request.session, AclOperation.DESCRIBE):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeLogDirsResponse(
            error_code=code if request.version >= _FIRST_WITH_ERROR else 0
        )
    if body.topics is None:
        return _response(context, lambda key: True)
    selected = {(topic.topic, index) for topic in body.topics for index in topic.partitions}
    return _response(context, lambda key: key in selected)


def _response(
    context: Context, is_selected: Callable[[TopicPartition], bool]
) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(
        results=[_result(directory, is_selected) for directory in context.logs.describe()]
    )


def _result(
    directory: LogDirDescription, is_selected: Callable[[TopicPartition], bool]
) -> DescribeLogDirsResult:
    if directory.error is not None:
        return DescribeLogDirsResult(directory.error.code, directory.path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in directory.partitions:
        if is_selected(log.partition):
            name, index = log.partition
            topics.setdefault(name, DescribeLogDirsTopic(name)).partitions.append(
                DescribeLogDirsPartition(index, log.size, log.offset_lag, log.is_future)
            )
    result = DescribeLogDirsResult(0, directory.path, list(topics.values()))
    if directory.space is not None:
        result.total_bytes, result.usable_bytes = directory.space
    return result
