"""Short functions for requests of administrators."""

from collections.abc import Mapping
from typing import Any

from penstock.core.errors import ErrorCode
from penstock.protocol.enums import ConfigOpType, ConfigResourceType
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.build import build_batch
from penstock.records.compress import Compression
from penstock.records.record import Record
from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType
from tests.support.broker.in_process import WireClient

TOPIC = ConfigResourceType.TOPIC
BROKER = ConfigResourceType.BROKER


def create_topic(
    client: WireClient, topic: str, configs: Mapping[str, str] | None = None
) -> ErrorCode:
    new_topic = CreatableTopic(
        topic, 1, 1, configs=[CreatableTopicConfig(*config) for config in (configs or {}).items()]
    )
    response = client.request(CreateTopicsRequest([new_topic], timeout_ms=1000), 7)
    return ErrorCode(response.topics[0].error_code)


def try_alter(
    client: WireClient,
    kind: int,
    name: str,
    settings: Mapping[str, str | None],
    operation: ConfigOpType = ConfigOpType.SET,
    *,
    validate_only: bool = False,
) -> tuple[ErrorCode, str | None]:
    """Changes settings; None deletes a value. Returns the error code and message."""
    configs = [
        IncrementalAlterConfigsAlterableConfig(
            key, ConfigOpType.DELETE if value is None else operation, value
        )
        for key, value in settings.items()
    ]
    resource = IncrementalAlterConfigsResource(kind, name, configs)
    response = client.request(IncrementalAlterConfigsRequest([resource], validate_only), 1)
    result = response.responses[0]
    assert (result.resource_type, result.resource_name) == (kind, name)
    return ErrorCode(result.error_code), result.error_message


def alter(client: WireClient, kind: int, name: str, settings: Mapping[str, str | None]) -> None:
    """Changes settings, which must succeed; None deletes a value."""
    assert try_alter(client, kind, name, settings) == (ErrorCode.NONE, None)


def describe(
    client: WireClient,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
) -> dict[str, Any]:
    """Returns the settings of a resource by name, with synonyms and documentation."""
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)])
    if version >= 1:
        request.include_synonyms = True
    if version >= 3:
        request.include_documentation = True
    result = client.request(request, version).results[0]
    assert result.error_code == 0, result.error_message
    return {entry.name: entry for entry in result.configs}


def try_produce(
    client: WireClient,
    topic: str,
    *records: Record,
    codec: Compression = Compression.NONE,
    acks: int = -1,
    partition: int = 0,
) -> Any:
    """Produces to a partition; returns the response for it."""
    batch = bytes(build_batch(list(records), compression=codec))
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, batch)])]
    response = client.request(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=data), 10)
    return response.responses[0].partition_responses[0]


def produce(
    client: WireClient,
    topic: str,
    *values: bytes | None,
    key: bytes | None = None,
    timestamp: int = 1_700_000_000_000,
    codec: Compression = Compression.NONE,
) -> int:
    """Appends one batch to partition 0, which must succeed; returns its first offset."""
    records = [Record(i, timestamp, key, value) for i, value in enumerate(values)]
    response = try_produce(client, topic, *records, codec=codec)
    assert response.error_code == 0, response.error_message
    offset: int = response.base_offset
    return offset


def fetch(client: WireClient, topic: str, offset: int = 0) -> Any:
    """Fetches partition 0 from an offset on."""
    partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic, partitions=[partition])]
    )
    return client.request(request, 11).responses[0].partitions[0]


def allow(
    client: WireClient,
    principal: str,
    operation: AclOperation,
    resource: ResourceType,
    name: str,
    *,
    pattern: PatternType = PatternType.LITERAL,
    permission: AclPermission = AclPermission.ALLOW,
    host: str = "*",
) -> None:
    """Creates an ACL, which must succeed."""
    creation = AclCreation(resource, name, pattern, principal, host, operation, permission)
    response = client.request(CreateAclsRequest([creation]), 3)
    assert response.results[0].error_code == 0, response.results[0].error_message
