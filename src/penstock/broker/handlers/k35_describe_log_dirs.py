"""DescribeLogDirs (35), versions 0 to 5: returns the directories of `log.dirs` (S1)."""

from dataclasses import dataclass

from penstock.broker.pacer import Pacer, Steps
from penstock.broker.request import HandlerResult, Request, Response
from penstock.broker.security.request_authorizer import RequestAuthorizer
from penstock.core.errors import ErrorCode
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
    pacer: Pacer
    logs: LogManager
    authorizer: RequestAuthorizer


def handle(context: Context, request: Request, body: DescribeLogDirsRequest) -> HandlerResult:
    if not context.authorizer.allows_cluster(request.session, AclOperation.DESCRIBE):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeLogDirsResponse(
            error_code=code if request.version >= _FIRST_WITH_ERROR else 0
        )
    return context.pacer.run(_steps(context, body))


def _steps(context: Context, body: DescribeLogDirsRequest) -> Steps[Response]:
    selected: dict[str, set[int]] | None = None
    if body.topics is not None:
        selected = {}
        for topic in body.topics:
            yield
            selected.setdefault(topic.topic, set()).update(topic.partitions)
    results = []
    for directory in context.logs.describe():
        results.append((yield from _result(directory, selected)))
    return DescribeLogDirsResponse(results=results)


def _result(
    directory: LogDirDescription, selected: dict[str, set[int]] | None
) -> Steps[DescribeLogDirsResult]:
    """Returns the selected partitions of a directory, or all if None."""
    if directory.error is not None:
        return DescribeLogDirsResult(directory.error.code, directory.path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for log in directory.partitions:
        yield
        name, index = log.partition
        if selected is None or index in selected.get(name, ()):
            topics.setdefault(name, DescribeLogDirsTopic(name)).partitions.append(
                DescribeLogDirsPartition(index, log.size, log.offset_lag, log.is_future)
            )
    result = DescribeLogDirsResult(0, directory.path, list(topics.values()))
    if directory.space is not None:
        result.total_bytes, result.usable_bytes = directory.space
    return result
