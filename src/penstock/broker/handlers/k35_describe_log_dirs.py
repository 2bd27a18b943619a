"""DescribeLogDirs (35): versions 0 to 5: the folders of `log.dirs`, and what is in them (S1)."""

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
        return _answer(context, lambda key: True)
    wanted = {(topic.topic, index) for topic in body.topics for index in topic.partitions}
    return _answer(context, lambda key: key in wanted)


def _answer(
    context: Context, is_wanted: Callable[[TopicPartition], bool]
) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(
        results=[_result(each, is_wanted) for each in context.logs.describe()]
    )


def _result(
    folder: LogDirDescription, is_wanted: Callable[[TopicPartition], bool]
) -> DescribeLogDirsResult:
    if folder.error is not None:
        return DescribeLogDirsResult(folder.error.code, folder.path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for each in folder.partitions:
        if is_wanted(each.partition):
            name, index = each.partition
            topics.setdefault(name, DescribeLogDirsTopic(name)).partitions.append(
                DescribeLogDirsPartition(index, each.size, each.offset_lag, each.is_future)
            )
    result = DescribeLogDirsResult(0, folder.path, list(topics.values()))
    if folder.space is not None:
        result.total_bytes, result.usable_bytes = folder.space
    return result
