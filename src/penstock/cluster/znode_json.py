"""The JSON in the nodes as structs, with the fields in the order in which Kafka writes them."""

from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from penstock.core.errors import KafkaStorageError

_Int = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Replicas = dict[int, tuple[_Int, ...]]


class ClusterIdJson(Struct, kw_only=True):
    version: str = "1"
    id: str


class LoginSecretJson(Struct, kw_only=True):
    version: _Int = 1
    secret: bytes


class ControllerJson(Struct, kw_only=True, rename="camel"):
    version: _Int = 2
    brokerid: _Int
    timestamp: str
    kraft_controller_epoch: _Int = -1


class FeatureLevelJson(Struct):
    max_version_level: _Int


class FeaturesJson(Struct, kw_only=True):
    features: dict[str, FeatureLevelJson]
    version: _Int = 2
    status: _Int = 1


class ProducerIdsJson(Struct, kw_only=True):
    version: _Int = 1
    broker: _Int
    block_start: str
    block_end: str


class FeatureRangeJson(Struct):
    min_version: _Int
    max_version: _Int


class BrokerJson(Struct, kw_only=True):
    features: dict[str, FeatureRangeJson] | None = None
    listener_security_protocol_map: dict[str, str] | None = None
    endpoints: list[str]
    rack: str | UnsetType | None = UNSET
    jmx_port: _Int = -1
    port: _Int
    host: str | None
    version: _Int = 5
    timestamp: str
    unclean: bool | UnsetType = UNSET
    """Penstock's own; Kafka ignores it."""


class TopicJson(Struct, kw_only=True):
    partitions: _Replicas
    topic_id: str | None = None
    adding_replicas: _Replicas = {}
    removing_replicas: _Replicas = {}
    version: _Int = 3


class PartitionJson(Struct, kw_only=True):
    controller_epoch: _Int
    leader: _Int
    version: _Int = 1
    leader_recovery_state: _Int | UnsetType = UNSET
    leader_epoch: _Int
    isr: tuple[_Int, ...]
    eligible_leader_replicas: tuple[_Int, ...] | UnsetType = UNSET
    """Penstock's own; Kafka ignores it."""


class ConfigJson(Struct, kw_only=True):
    version: _Int = 1
    config: dict[str, str]


class AclEntryJson(Struct, rename="camel"):
    principal: str
    permission_type: str
    host: str
    operation: str


class AclsJson(Struct, kw_only=True):
    acls: list[AclEntryJson]
    version: _Int = 1


class DelegationTokenJson(Struct, kw_only=True, rename="camel"):
    """Principals are escaped, as in paths."""

    version: _Int = 3
    owner: str
    token_requester: str | None = None
    """None before version 3: it is the owner."""
    renewers: tuple[str, ...]
    issue_timestamp: _Long
    max_timestamp: _Long
    expiry_timestamp: _Long
    token_id: str


class PartitionNameJson(Struct):
    topic: str
    partition: _Int


class PartitionNamesJson(Struct, kw_only=True):
    """Of a preferred election, and of a notification about in-sync replicas."""

    version: _Int = 1
    partitions: list[PartitionNameJson]


class PartitionReplicasJson(Struct):
    topic: str
    partition: _Int
    replicas: tuple[_Int, ...]


class ReassignPartitionsJson(Struct, kw_only=True):
    version: _Int = 1
    partitions: list[PartitionReplicasJson]


class LogDirEventJson(Struct, kw_only=True):
    version: _Int = 1
    broker: _Int
    event: _Int = 1


class ConfigChangeJson(Struct, kw_only=True):
    version: _Int = 2
    entity_path: str


class AclChangeJson(Struct, kw_only=True, rename="camel"):
    version: _Int = 1
    resource_type: str
    name: str
    pattern_type: str


encode_json: Final = msgspec.json.Encoder().encode


class DamagedNodeError(KafkaStorageError):
    """A node whose content Kafka would not have written."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(
            f"metadata node {path} can not be read: {problem}; it is damaged, or neither Kafka nor "
            "Penstock wrote it: restore its content from a backup or by hand"
        )
        self.path = path


_Json = TypeVar("_Json", bound=Struct)


def parse(path: str, data: bytes, kind: type[_Json]) -> _Json:
    """Decodes the content of the node at `path`; unknown fields are ignored."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedNodeError(path, str(error)) from error
