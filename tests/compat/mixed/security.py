"""SCRAM users, ACLs, quotas and settings of brokers: set through one broker, held by all."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from penstock.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from penstock.protocol.messages.describe_acls import DescribeAclsRequest
from penstock.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from penstock.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.security.acl import AclOperation, AclPermission, PatternType, ResourceType
from penstock.security.scram_credential import ScramMechanism
from tests.compat.mixed.view import METADATA_VERSION, WAIT_S, MixedView
from tests.support.broker.in_process import WireClient
from tests.support.broker.logins import scram_login, set_password
from tests.support.history.cluster import BROKER_IDS, LOGIN_PORT
from tests.support.protocol.admin import BROKER, allow, alter, describe

MECHANISMS = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
ANY = 1
"""Of the enumerations in filters of ACLs."""
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def change_users(view: MixedView, controller: int, name: str) -> None:
    """Every broker accepts the password that was set last through the controller, and no older."""
    with view.connected(controller) as client:
        for mechanism in MECHANISMS:
            assert set_password(client, mechanism, name, f"{name}-old").error_code == 0
            assert set_password(client, mechanism, name, f"{name}-new").error_code == 0
    for mechanism in MECHANISMS:
        wait_for_login(view, mechanism, name, f"{name}-new", ErrorCode.NONE)
        wait_for_login(view, mechanism, name, f"{name}-old", ErrorCode.SASL_AUTHENTICATION_FAILED)
    request = DescribeUserScramCredentialsRequest([UserName(name)])
    wait_until_equal(view, lambda client: client.request(request, 0).results)


def wait_for_login(
    view: MixedView, mechanism: ScramMechanism, user: str, password: str, result: ErrorCode
) -> None:
    def problem() -> str:
        for broker_id in BROKER_IDS:
            with at_logins(view, broker_id) as client:
                code = ErrorCode(scram_login(client, mechanism, user, password).error_code)
            if code is not result:
                return f"broker {broker_id} says {code.name} to {user}"
        return ""

    view.cluster.poll(problem, WAIT_S)


@contextmanager
def at_logins(view: MixedView, broker_id: int) -> Iterator[WireClient]:
    client = WireClient((view.cluster.network.address(broker_id), LOGIN_PORT))
    try:
        yield client
    finally:
        client.sock.close()


def change_acls(view: MixedView, through: int, user: str, name: str) -> None:
    """A user may describe what ACLs allow, on every broker, until they are deleted."""
    principal = f"User:{user}"
    topics = {f"{name}-open": UNKNOWN, f"{name}-shut": DENIED, "other": DENIED}
    wait_for_access(view, user, dict.fromkeys(topics, DENIED))
    with view.connected(through) as client:
        describing = (AclOperation.DESCRIBE, ResourceType.TOPIC)
        allow(client, principal, *describing, f"{name}-", pattern=PatternType.PREFIXED)
        allow(client, principal, *describing, f"{name}-shut", permission=AclPermission.DENY)
        allow(client, "User:*", AclOperation.READ, ResourceType.GROUP, "*", host="127.0.0.1")
    wait_for_access(view, user, topics)
    described = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    wait_until_equal(view, lambda client: sorted_acls(client.request(described, 3)))

    everything = DeleteAclsFilter(ANY, None, ANY, principal, None, ANY, ANY)
    deleted = view.request(through, DeleteAclsRequest([everything]), 3).filter_results[0]
    assert deleted.error_code == 0, deleted.error_message
    assert len(deleted.matching_acls) == 2
    wait_for_access(view, user, dict.fromkeys(topics, DENIED))
    wait_until_equal(view, lambda client: sorted_acls(client.request(described, 3)))


def wait_for_access(view: MixedView, user: str, expected: Mapping[str, ErrorCode]) -> None:
    """Waits until every broker treats a user's requests about missing topics like this."""
    request = MetadataRequest(
        [MetadataRequestTopic(name=topic) for topic in expected], allow_auto_topic_creation=False
    )

    def problem() -> str:
        for broker_id in BROKER_IDS:
            with at_logins(view, broker_id) as client:
                verdict = scram_login(client, MECHANISMS[0], user, f"{user}-new")
                assert verdict.error_code == 0, verdict.error_message
                topics = client.request(request, METADATA_VERSION).topics
            access = {topic.name: ErrorCode(topic.error_code) for topic in topics}
            if access != expected:
                return f"broker {broker_id} answers {access}"
        return ""

    view.cluster.poll(problem, WAIT_S)


def sorted_acls(response: Any) -> list[Any]:
    assert response.error_code == 0, response.error_message
    return sorted(
        (
            *(resource.resource_type, resource.resource_name, resource.pattern_type),
            *(acl.principal, acl.host, acl.operation, acl.permission_type),
        )
        for resource in response.resources
        for acl in resource.acls
    )


def change_quotas(view: MixedView, through: int, name: str) -> None:
    """Every broker describes the same quotas, also after some were removed."""
    entities: list[list[tuple[str, str | None]]] = [
        [("user", name)],
        [("user", f"{name}: ä%/*")],
        [("user", None)],
        [("user", name), ("client-id", "app")],
        [("user", name), ("client-id", None)],
        [("client-id", f"{name}-app")],
    ]
    rates = [OpData("producer_byte_rate", 1e9), OpData("consumer_byte_rate", 2e9)]
    alter_quotas(view, through, [(entity, rates) for entity in entities])
    ip: list[tuple[str, str | None]] = [("ip", "127.0.0.9")]
    alter_quotas(view, through, [(ip, [OpData("connection_creation_rate", 1000.0)])])
    wait_until_equal(view, described_quotas)
    with view.connected(through) as client:
        assert len(described_quotas(client)) >= len(entities) + 1
    removal = [OpData("producer_byte_rate", remove=True)]
    alter_quotas(view, through, [(entity, removal) for entity in entities])
    wait_until_equal(view, described_quotas)


def alter_quotas(
    view: MixedView,
    through: int,
    changes: list[tuple[list[tuple[str, str | None]], list[OpData]]],
) -> None:
    entries = [
        AlterClientQuotasRequestEntryData(
            [AlterClientQuotasRequestEntityData(*part) for part in entity], ops
        )
        for entity, ops in changes
    ]
    response = view.request(through, AlterClientQuotasRequest(entries), 1)
    assert [(entry.error_code, entry.error_message) for entry in response.entries] == [
        (0, None)
    ] * len(entries)


def described_quotas(client: WireClient) -> dict[Any, Any]:
    response = client.request(DescribeClientQuotasRequest(), 1)
    assert response.error_code == 0, response.error_message
    return {
        frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


def change_broker_settings(view: MixedView, through: int) -> None:
    """The settings of all brokers are in force on each of them, until they are removed."""
    name, value = "message.max.bytes", str(1_500_000 + through)
    with view.connected(through) as client:
        alter(client, BROKER, "", {name: value})
    wait_for_setting(view, name, value)
    with view.connected(through) as client:
        alter(client, BROKER, "", {name: None})
    wait_for_setting(view, name, "1048588")


def wait_for_setting(view: MixedView, name: str, expected: str) -> None:
    def problem() -> str:
        for broker_id in BROKER_IDS:
            with view.connected(broker_id) as client:
                value = describe(client, BROKER, str(broker_id), [name])[name].value
            if value != expected:
                return f"broker {broker_id} has {name}={value}, not {expected}"
        return ""

    view.cluster.poll(problem, WAIT_S)


def wait_until_equal(view: MixedView, read: Callable[[WireClient], Any]) -> None:
    """Waits until every broker says the same."""

    def problem() -> str:
        seen = {}
        for broker_id in BROKER_IDS:
            with view.connected(broker_id) as client:
                seen[broker_id] = read(client)
        first = seen[BROKER_IDS[0]]
        return "" if all(value == first for value in seen.values()) else f"brokers differ: {seen}"

    view.cluster.poll(problem, WAIT_S)
