"""The admin client with our broker: ACLs, quotas, users, logins and permissions (X2, X3, X4)."""

from collections.abc import Iterator, Mapping

import pytest

from penstock.client.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    AdminError,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    PatternType,
    Quota,
    ResourceType,
    ScramCredentialInfo,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from penstock.client.admin.admin import Admin
from penstock.client.errors import AuthenticationError, AuthorizationError
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from tests.support.broker.in_process import RunningBroker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        **SASL_SETTINGS,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:admin",
    }


@pytest.fixture(scope="module")
def admin(broker: RunningBroker) -> Iterator[Admin]:
    """A super user without a login."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as first:
        first.create_topics([NewTopic("t", 1, 1)])
        yield first


def sasl(broker: RunningBroker, user: str, password: str, mechanism: str = "PLAIN") -> Admin:
    address = next(
        address_item
        for address_item in broker.addresses
        if address_item.listener == "SASL_PLAINTEXT"
    )
    return Admin(
        bootstrap_servers=f"{address.host}:{address.port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=user,
        sasl_plain_password=password,
    )


def acl(name: str, *, operation: AclOperation = AclOperation.READ) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        name,
        PatternType.LITERAL,
        "User:ann",
        "*",
        operation,
        AclPermission.ALLOW,
    )


def test_acls_are_created_described_and_deleted(admin: Admin) -> None:
    """X3: ACLs are created, found by every field and deleted."""
    read, write = acl("x"), acl("x", operation=AclOperation.WRITE)
    prefixed = acl("x-")._replace(pattern_type=PatternType.PREFIXED, principal="User:bob")
    admin.create_acls([read, write, prefixed, read])
    assert admin.describe_acls() == sorted([read, write, prefixed])
    assert admin.describe_acls(AclBindingFilter(principal="User:bob")) == [prefixed]
    assert admin.describe_acls(AclBindingFilter(operation=AclOperation.WRITE)) == [write]
    matching = AclBindingFilter(ResourceType.TOPIC, "x-1", PatternType.MATCH)
    assert admin.describe_acls(matching) == [prefixed]
    no_match = AclBindingFilter(host="10.0.0.1")
    of_ann = AclBindingFilter(principal="User:ann")
    assert admin.delete_acls([of_ann, no_match]) == {of_ann: [read, write], no_match: []}
    assert admin.delete_acls([AclBindingFilter()]) == {AclBindingFilter(): [prefixed]}
    assert admin.describe_acls() == []


def test_invalid_acls_are_rejected(admin: Admin) -> None:
    bad = acl("x")._replace(principal="ann")
    with pytest.raises(AdminError, match="ACL ALLOW ann READ on TOPIC x") as failed:
        admin.create_acls([bad, acl("x")])
    assert failed.value.code is ErrorCode.INVALID_REQUEST
    assert list(failed.value.results) == [acl("x")]
    admin.delete_acls([AclBindingFilter()])


def test_quotas_are_set_described_and_removed(admin: Admin) -> None:
    """X4."""
    ann, default_user = ClientQuotaEntity("ann"), ClientQuotaEntity(user=Quota.DEFAULT)
    user_and_client = ClientQuotaEntity("ann", "app")
    address = ClientQuotaEntity(ip="10.0.0.1")
    admin.alter_client_quotas(
        {
            ann: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 500},
            default_user: {"request_percentage": 50},
            user_and_client: {"producer_byte_rate": 10},
            address: {"connection_creation_rate": 9},
        }
    )
    results = admin.describe_client_quotas()
    assert results[ann] == {"consumer_byte_rate": 500.0, "producer_byte_rate": 1000.0}
    assert set(results) == {ann, default_user, user_and_client, address}
    assert set(admin.describe_client_quotas(ClientQuotaFilter("ann"))) == {ann, user_and_client}
    strict = ClientQuotaFilter("ann", strict=True)
    assert set(admin.describe_client_quotas(strict)) == {ann}
    assert set(admin.describe_client_quotas(ClientQuotaFilter(client_id=Quota.ANY))) == {
        user_and_client
    }
    default = ClientQuotaFilter(user=Quota.DEFAULT)
    assert admin.describe_client_quotas(default) == {default_user: {"request_percentage": 50.0}}
    removed: dict[str, float | None] = {"producer_byte_rate": None, "consumer_byte_rate": None}
    admin.alter_client_quotas({ann: removed}, validate_only=True)
    assert admin.describe_client_quotas()[ann]
    admin.alter_client_quotas({ann: removed})
    assert ann not in admin.describe_client_quotas()
    with pytest.raises(AdminError, match="quota of user ann, client-id app") as failed:
        admin.alter_client_quotas({user_and_client: {"speed": 1}})
    assert failed.value.code is ErrorCode.INVALID_REQUEST


def test_scram_users_are_created_and_deleted(admin: Admin, broker: RunningBroker) -> None:
    """X2: a password that was set logs in, with every mechanism."""
    admin.alter_user_scram_credentials(
        [
            ScramUpsertion("carl", SHA_256, "carl-secret"),
            ScramUpsertion("carl", SHA_512, "carl-other", iterations=8192, salt=b"salt"),
            ScramUpsertion("dora", SHA_256, "dora-secret"),
        ]
    )
    assert admin.describe_user_scram_credentials() == {
        "carl": (ScramCredentialInfo(SHA_256, 4096), ScramCredentialInfo(SHA_512, 8192)),
        "dora": (ScramCredentialInfo(SHA_256, 4096),),
    }
    for mechanism, password in (("SCRAM-SHA-256", "carl-secret"), ("SCRAM-SHA-512", "carl-other")):
        with sasl(broker, "carl", password, mechanism) as carl:
            assert carl.list_topics() == {}
    admin.alter_user_scram_credentials([ScramDeletion("carl", SHA_512)])
    assert admin.describe_user_scram_credentials(["carl"]) == {
        "carl": (ScramCredentialInfo(SHA_256, 4096),)
    }
    with pytest.raises(AdminError) as failed:
        admin.describe_user_scram_credentials(["dora", "nobody"])
    assert failed.value.errors["nobody"].code is ErrorCode.RESOURCE_NOT_FOUND
    assert list(failed.value.results) == ["dora"]
    few = ScramUpsertion("dora", SHA_256, "x", iterations=5)
    with pytest.raises(AdminError, match="number of iterations") as weak:
        admin.alter_user_scram_credentials([few, ScramDeletion("nobody", SHA_256)])
    assert weak.value.errors["dora"].code is ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert weak.value.errors["nobody"].code is ErrorCode.RESOURCE_NOT_FOUND


def test_a_password_is_not_shown() -> None:
    assert "hunter2" not in repr(ScramUpsertion("u", SHA_256, "hunter2"))


def test_a_wrong_password_raises_at_once(broker: RunningBroker) -> None:
    """E3: the error is raised at once, without retries."""
    with sasl(broker, "ann", "wrong") as ann:
        with pytest.raises(AuthenticationError):
            ann.list_topics()
        with pytest.raises(AuthenticationError):
            ann.create_topics([NewTopic("t2")])


def test_missing_permissions_raise_errors(admin: Admin, broker: RunningBroker) -> None:
    """E3: every error names the missing ACL; a granted permission works."""
    t0 = TopicPartition("t", 0)
    with sasl(broker, "bob", "bob-secret") as bob:
        assert bob.list_topics() == {}
        with pytest.raises(AdminError, match="ACL on the topic") as created:
            bob.create_topics([NewTopic("mine", 1, 1)])
        assert isinstance(created.value.errors["mine"], AuthorizationError)
        with pytest.raises(AdminError) as described:
            bob.describe_topics(["t"])
        assert described.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(AdminError) as listed:
            bob.list_offsets({t0: 0})
        assert listed.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(AdminError) as group:
            bob.describe_groups(["g"])
        assert group.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        with pytest.raises(AuthorizationError, match="ACL on the cluster"):
            bob.describe_acls()
        with pytest.raises(AdminError) as directories:
            bob.describe_log_dirs()
        assert directories.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(AdminError) as configs:
            bob.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "t")])
        assert configs.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(AdminError) as fenced:
            bob.fence_producers(["theirs"])
        assert fenced.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        granted = acl("t", operation=AclOperation.DESCRIBE)._replace(principal="User:bob")
        admin.create_acls([granted])
        results = bob.describe_topics(["t"], include_authorized_operations=True)["t"]
        assert results.authorized_operations == frozenset({AclOperation.DESCRIBE})
        assert bob.list_offsets({t0: 0})[t0].offset == -1
    admin.delete_acls([AclBindingFilter()])
