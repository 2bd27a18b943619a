"""DescribeLogDirs (35): log directories of a broker and the replicas in them.

Versions 0 to 5, flexible from 2; Kafka 4 starts at 1.
"""

from typing import Annotated

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Int64, Message, Struct, request, response, wire


class DescribableLogDirTopic(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class DescribeLogDirsRequest(Message):
    INFO = request(ApiKey.DESCRIBE_LOG_DIRS, versions="0-5", flexible="2+")

    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: bool = False


class DescribeLogDirsTopic(Struct):
    name: str = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(Struct):
    error_code: Int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Annotated[Int64, wire("4+", ignorable=True)] = -1
    usable_bytes: Annotated[Int64, wire("4+", ignorable=True)] = -1
    is_cordoned: Annotated[bool, wire("5+", ignorable=True)] = False


class DescribeLogDirsResponse(Message):
    INFO = response(ApiKey.DESCRIBE_LOG_DIRS, versions="0-5", flexible="2+")

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, wire("3+", ignorable=True)] = 0
    results: list[DescribeLogDirsResult] = []
