"""AlterReplicaLogDirs (34): replicas move to another log directory of their broker.

Versions 0 to 2, flexible from 2; Kafka 4 starts at 1.
"""

from penstock.protocol.api_key import ApiKey
from penstock.protocol.fields import Int16, Int32, Message, Struct, request, response


class AlterReplicaLogDirTopic(Struct):
    name: str = ""
    partitions: list[Int32] = []


class AlterReplicaLogDir(Struct):
    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirsRequest(Message):
    INFO = request(ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-2", flexible="2+")

    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirsResponse(Message):
    INFO = response(ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-2", flexible="2+")

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []
