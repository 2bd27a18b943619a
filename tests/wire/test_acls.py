"""ACLs over the wire: creation, description, deletion and authorization errors (X3, E3)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.config.broker_config import ConfigError
from penstock.core.errors import ErrorCode
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from penstock.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.protocol.messages.describe_acls import DescribeAclsRequest
from penstock.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.list_config_resources import ListConfigResourcesRequest
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.records.record import Record
from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType
from penstock.security.scram_credential import ScramMechanism
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS, logged_in, set_password
from tests.support.protocol.admin import (
    BROKER,
    TOPIC,
    allow,
    create_topic,
    fetch,
    produce,
    try_alter,
    try_produce,
)

SETTINGS = {
    **SASL_SETTINGS,
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:admin",
}
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("acls"), SETTINGS) as running:
        yield running


@pytest.fixture
def admin(broker: RunningBroker) -> Iterator[WireClient]:
    with logged_in(broker, "admin") as client:
        yield client


@pytest.fixture
def ann(broker: RunningBroker) -> Iterator[WireClient]:
    with logged_in(broker, "ann") as client:
        yield client


def describe_acls(client: WireClient, name: str | None, version: int = 3) -> Any:
    request = DescribeAclsRequest(
        ResourceType.ANY if name is None else ResourceType.TOPIC,
        name,
        PatternType.ANY if version else PatternType.LITERAL,
        None,
        None,
        AclOperation.ANY,
        AclPermission.ANY,
    )
    return client.request(request, version)


def metadata_error(client: WireClient, topic: str) -> ErrorCode:
    response = client.request(MetadataRequest([MetadataRequestTopic(name=topic)]), 9)
    return ErrorCode(response.topics[0].error_code)


def remove_acls(client: WireClient, resource_type: ResourceType) -> None:
    """Deletes all ACLs of a type of resources."""
    acl_filter = DeleteAclsFilter(
        resource_type, None, PatternType.ANY, None, None, AclOperation.ANY, AclPermission.ANY
    )
    assert client.request(DeleteAclsRequest([acl_filter]), 3).filter_results[0].error_code == 0


def test_without_acls_everything_is_denied(admin: WireClient, ann: WireClient) -> None:
    create_topic(admin, "closed")
    assert metadata_error(ann, "closed") is DENIED
    response = try_produce(ann, "closed", Record(0, 0, None, b"x"))
    assert response.error_code == DENIED
    assert "User:ann" in response.error_message
    assert "ACL" in response.error_message
    assert fetch(ann, "closed").error_code == DENIED
    assert create_topic(ann, "mine") is DENIED
    everything = ann.request(MetadataRequest(None), 9)
    assert everything.topics == []
    assert ann.request(InitProducerIdRequest(None), 2).error_code == CLUSTER_DENIED


@pytest.mark.parametrize("version", [12, 15, 17])
def test_a_consumer_cannot_fetch_as_a_follower(
    admin: WireClient, ann: WireClient, version: int
) -> None:
    """Its offset would count as an acknowledgement of the records below it."""
    name = f"followed-{version}"
    create_topic(admin, name)
    allow(admin, "User:ann", AclOperation.READ, ResourceType.TOPIC, name)
    topic_id = (
        ann.request(MetadataRequest([MetadataRequestTopic(name=name)]), 12).topics[0].topic_id
    )
    partition = FetchPartition(0, -1, 0, partition_max_bytes=1000)
    request = FetchRequest(topics=[FetchTopic(name, topic_id, [partition])])
    (result,) = ann.request(request, version).responses
    assert result.partitions[0].error_code == 0
    if version >= 15:
        request.replica_state.replica_id = 2
    else:
        request.replica_id = 2
    (result,) = ann.request(request, version).responses
    assert result.partitions[0].error_code == DENIED
    allow(admin, "User:ann", AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    (result,) = ann.request(request, version).responses
    assert result.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    remove_acls(admin, ResourceType.CLUSTER)


def test_an_acl_applies_once_the_response_is_sent(admin: WireClient, ann: WireClient) -> None:
    create_topic(admin, "open")
    allow(admin, "User:ann", AclOperation.WRITE, ResourceType.TOPIC, "open")
    produce(ann, "open", b"a")
    assert metadata_error(ann, "open") is ErrorCode.NONE  # WRITE implies DESCRIBE
    assert fetch(ann, "open").error_code == DENIED
    allow(
        admin, "User:ann", AclOperation.READ, ResourceType.TOPIC, "op", pattern=PatternType.PREFIXED
    )
    assert fetch(ann, "open").error_code == 0
    allow(
        admin,
        "User:ann",
        AclOperation.READ,
        ResourceType.TOPIC,
        "*",
        permission=AclPermission.DENY,
    )
    assert fetch(ann, "open").error_code == DENIED


def test_cluster_operations_need_permission(admin: WireClient, ann: WireClient) -> None:
    """E3: every API of the cluster reports a missing permission in its own format."""
    create_topic(admin, "guarded")
    assert describe_acls(ann, None).error_code == CLUSTER_DENIED
    creation = AclCreation(ResourceType.TOPIC, "t", 3, "User:ann", "*", AclOperation.ALL, 3)
    assert ann.request(CreateAclsRequest([creation]), 3).results[0].error_code == CLUSTER_DENIED
    match_all = DeleteAclsFilter(1, None, 1, None, None, 1, 1)
    assert (
        ann.request(DeleteAclsRequest([match_all]), 3).filter_results[0].error_code
        == CLUSTER_DENIED
    )
    assert try_alter(ann, TOPIC, "guarded", {"retention.ms": "1"})[0] is DENIED
    assert try_alter(ann, BROKER, "", {"log.retention.ms": "1"})[0] is CLUSTER_DENIED
    resources = [
        DescribeConfigsResource(TOPIC, "guarded", None),
        DescribeConfigsResource(BROKER, "1", None),
        DescribeConfigsResource(32, "g", None),
    ]
    results = ann.request(DescribeConfigsRequest(resources), 4).results
    assert [result.error_code for result in results] == [
        DENIED,
        CLUSTER_DENIED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ]
    assert ann.request(ListConfigResourcesRequest(), 1).error_code == CLUSTER_DENIED
    assert ann.request(DescribeClientQuotasRequest(), 1).error_code == CLUSTER_DENIED
    entity = AlterClientQuotasRequestEntityData("user", "ann")
    quota = AlterClientQuotasRequestEntryData([entity], [OpData("producer_byte_rate", 1.0)])
    assert ann.request(AlterClientQuotasRequest([quota]), 1).entries[0].error_code == CLUSTER_DENIED
    assert ann.request(DescribeUserScramCredentialsRequest(), 0).error_code == CLUSTER_DENIED
    result = set_password(ann, ScramMechanism.SCRAM_SHA_256, "ann", "new")
    assert result.error_code == CLUSTER_DENIED


def test_permission_to_create_applies_to_one_topic(admin: WireClient, ann: WireClient) -> None:
    allow(admin, "User:ann", AclOperation.CREATE, ResourceType.TOPIC, "anns")
    request = CreateTopicsRequest(
        [CreatableTopic("anns", 1, 1), CreatableTopic("bobs", 1, 1)], timeout_ms=1000
    )
    results = {topic.name: topic.error_code for topic in ann.request(request, 7).topics}
    assert results == {"anns": 0, "bobs": DENIED}


def test_an_acl_can_name_a_host(admin: WireClient, ann: WireClient) -> None:
    create_topic(admin, "hosts")
    for host, code in (("10.1.2.3", DENIED), ("127.0.0.1", ErrorCode.NONE)):
        allow(admin, "User:ann", AclOperation.DESCRIBE, ResourceType.TOPIC, "hosts", host=host)
        assert metadata_error(ann, "hosts") is code


@pytest.mark.parametrize("version", range(4))
def test_acls_are_described_and_deleted(admin: WireClient, version: int) -> None:
    name = f"shown-{version}"
    creation = AclCreation(
        ResourceType.TOPIC,
        name,
        PatternType.LITERAL,
        "User:x",
        "10.0.0.1",
        AclOperation.READ,
        AclPermission.DENY,
    )
    for _ in range(2):  # creating it twice is no error
        assert admin.request(CreateAclsRequest([creation]), version).results[0].error_code == 0
    (resource,) = describe_acls(admin, name, version).resources
    assert (resource.resource_type, resource.resource_name) == (ResourceType.TOPIC, name)
    (acl,) = resource.acls
    assert (acl.principal, acl.host, acl.operation, acl.permission_type) == (
        "User:x",
        "10.0.0.1",
        AclOperation.READ,
        AclPermission.DENY,
    )
    acl_filter = DeleteAclsFilter(
        ResourceType.TOPIC, name, PatternType.LITERAL, None, None, AclOperation.ANY, 1
    )
    (result,) = admin.request(DeleteAclsRequest([acl_filter]), version).filter_results
    (deleted_acl,) = result.matching_acls
    assert (deleted_acl.error_code, deleted_acl.principal, deleted_acl.resource_name) == (
        0,
        "User:x",
        name,
    )
    assert describe_acls(admin, name, version).resources == []
    (result,) = admin.request(DeleteAclsRequest([acl_filter]), version).filter_results
    assert (result.error_code, result.matching_acls) == (0, [])


def test_invalid_acls_are_rejected_individually(admin: WireClient) -> None:
    valid = AclCreation(ResourceType.TOPIC, "t", 3, "User:x", "*", AclOperation.READ, 3)
    invalid = AclCreation(ResourceType.TOPIC, "t", 3, "no colon", "*", AclOperation.READ, 3)
    results = admin.request(CreateAclsRequest([invalid, valid]), 3).results
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST, 0]
    unknown = DeleteAclsFilter(ResourceType.TOPIC, None, 3, None, None, 99, 1)
    (result,) = admin.request(DeleteAclsRequest([unknown]), 3).filter_results
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_acls_survive_a_restart(tmp_path: Path) -> None:
    with running_broker(tmp_path, SETTINGS) as broker, logged_in(broker, "admin") as admin:
        create_topic(admin, "t")
        allow(admin, "User:ann", AclOperation.DESCRIBE, ResourceType.TOPIC, "t")
    with running_broker(tmp_path, SETTINGS) as broker, logged_in(broker, "ann") as ann:
        assert metadata_error(ann, "t") is ErrorCode.NONE
        assert fetch(ann, "t").error_code == DENIED


def test_access_without_acls_can_be_allowed_for_everyone(tmp_path: Path) -> None:
    settings = {
        **SETTINGS,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with (
        running_broker(tmp_path, settings) as broker,
        broker.connect("PLAINTEXT") as anonymous,
        logged_in(broker, "ann") as ann,
    ):
        create_topic(ann, "t")
        produce(anonymous, "t", b"x")
        allow(ann, "User:ann", AclOperation.ALL, ResourceType.TOPIC, "t")
        produce(ann, "t", b"x")
        response = try_produce(anonymous, "t", Record(0, 0, None, b"x"))
        assert response.error_code == DENIED
        assert "User:ANONYMOUS" in response.error_message


def test_without_an_authorizer_acls_are_disabled(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, broker.connect() as client:
        response = describe_acls(client, None)
        assert response.error_code == ErrorCode.SECURITY_DISABLED
        assert "authorizer.class.name" in response.error_message
        creation = AclCreation(ResourceType.TOPIC, "t", 3, "User:a", "*", AclOperation.ALL, 3)
        (result,) = client.request(CreateAclsRequest([creation]), 3).results
        assert result.error_code == ErrorCode.SECURITY_DISABLED
        match_all = DeleteAclsFilter(1, None, 1, None, None, 1, 1)
        (deleted,) = client.request(DeleteAclsRequest([match_all]), 3).filter_results
        assert deleted.error_code == ErrorCode.SECURITY_DISABLED


def test_an_unknown_authorizer_is_rejected_at_startup(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": "com.example.MyAuthorizer"}
    with pytest.raises(ConfigError, match="StandardAuthorizer"), running_broker(tmp_path, settings):
        pass
