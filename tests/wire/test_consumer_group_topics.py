"""Consumer groups whose topics change, and pattern subscriptions (C3, KIP-848)."""

import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.broker.metadata.features import GROUP_VERSION
from penstock.core.errors import ErrorCode
from penstock.protocol.enums import UpgradeType
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.security.acl import AclOperation, PatternType, ResourceType
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS, logged_in
from tests.support.coordinator.group_client import (
    GROUP_SETTINGS,
    commit,
    committed,
    delete_topic,
    described,
    fetched_group,
    find_group,
    grow,
    pass_time,
    wait_until,
)
from tests.support.coordinator.group_members import (
    ConsumerMember,
    owned_by,
    reconcile,
    reconcile_to,
)
from tests.support.protocol.admin import allow
from tests.support.protocol.requests import make_topic

REFRESH_MS = 11_000
"""Patterns are resolved at most once in ten seconds."""


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return GROUP_SETTINGS


# --- changes of topics


def test_a_topic_that_is_created_later_is_assigned(client: WireClient) -> None:
    find_group(client, "early")
    member = ConsumerMember(client, "early", "m", names=["early"]).joined()
    assert member.assigned == {}
    topic = make_topic(client, "early", 2)
    reconcile_to([{topic: [0, 1]}], member)


def test_added_partitions_are_assigned(client: WireClient) -> None:
    topic = make_topic(client, "growing", 2)
    find_group(client, "growing")
    members = [ConsumerMember(client, "growing", name, names=["growing"]).joined() for name in "ab"]
    reconcile(*members)
    epoch = members[0].epoch
    grow(client, "growing", 4)
    reconcile(*members)
    assert owned_by(*members) == {topic: [0, 1, 2, 3]}
    assert [member.epoch for member in members] == [epoch + 1] * 2


def test_a_recreated_topic_has_no_committed_offsets(client: WireClient) -> None:
    first = make_topic(client, "again", 2)
    retained = make_topic(client, "retained", 1)
    find_group(client, "again")
    member = ConsumerMember(client, "again", "m", names=["again", "retained"]).joined()
    offsets = {("again", 0): 5, ("retained", 0): 7}
    assert commit(client, "again", offsets, member_id="m", epoch=member.epoch) == [0, 0]
    delete_topic(client, "again")
    reconcile_to([{retained: [0]}], member)
    assert committed(client, "again") == {("retained", 0): 7}
    second = make_topic(client, "again", 1)
    assert first != second
    reconcile_to([{retained: [0], second: [0]}], member)
    response = fetched_group(
        client, "again", {second: [0]}, member_id="m", epoch=member.epoch, version=10
    )
    assert response.topics[0].partitions[0].committed_offset == -1


def test_members_with_different_subscriptions(client: WireClient) -> None:
    ids = {suffix: make_topic(client, f"mixed-{suffix}", 2) for suffix in "xyz"}
    find_group(client, "mixed")
    first = ConsumerMember(client, "mixed", "one", names=["mixed-x", "mixed-y"]).joined()
    second = ConsumerMember(client, "mixed", "two", names=["mixed-y", "mixed-z"]).joined()
    reconcile(first, second)
    assert first.assigned[ids["x"]] == second.assigned[ids["z"]] == [0, 1]
    assert owned_by(first, second) == {id_: [0, 1] for id_ in ids.values()}
    second.beat(second.assigned, names=["mixed-z"])
    reconcile(first, second)
    assert second.assigned == {ids["z"]: [0, 1]}
    assert owned_by(first, second) == {id_: [0, 1] for id_ in ids.values()}


# --- patterns


def test_a_pattern_must_match_the_whole_name(client: WireClient) -> None:
    ids = {name: make_topic(client, name) for name in ("re-a", "re-b", "re-a-not", "not-re-a")}
    find_group(client, "re")
    member = ConsumerMember(client, "re", "m", regex="re-[ab]").joined()
    reconcile_to([{ids["re-a"]: [0], ids["re-b"]: [0]}], member)
    (member_data,) = described(client, "re").members
    assert (member_data.subscribed_topic_names, member_data.subscribed_topic_regex) == (
        [],
        "re-[ab]",
    )


def test_a_subscription_with_a_pattern_and_names(client: WireClient) -> None:
    ids = {name: make_topic(client, name) for name in ("both-1", "both-2", "other-1")}
    find_group(client, "both")
    member = ConsumerMember(client, "both", "m", names=["other-1"], regex="both-.*").joined()
    reconcile_to([{id_: [0] for id_ in ids.values()}], member)


def test_a_new_matching_topic_is_assigned(broker: RunningBroker, client: WireClient) -> None:
    first = make_topic(client, "fresh-1")
    find_group(client, "fresh")
    member = ConsumerMember(client, "fresh", "m", regex="fresh-.*").joined()
    reconcile_to([{first: [0]}], member)
    second = make_topic(client, "fresh-2")
    reconcile(member)
    assert member.assigned == {first: [0]}, "the pattern is resolved at most once in ten seconds"
    pass_time(broker, REFRESH_MS)
    reconcile_to([{first: [0], second: [0]}], member)
    delete_topic(client, "fresh-1")
    reconcile_to([{second: [0]}], member)


def test_a_pattern_is_replaced_by_names(client: WireClient) -> None:
    first, second = make_topic(client, "up-1"), make_topic(client, "up-2")
    find_group(client, "up")
    member = ConsumerMember(client, "up", "m", regex="up-.*").joined()
    reconcile_to([{first: [0], second: [0]}], member)
    member.beat(member.assigned, regex="", names=["up-2"])
    reconcile_to([{second: [0]}], member)


@pytest.mark.parametrize("pattern", ["(", "[a", "*", r"(?=look)", r"(a)\1", "a{1,99999}"])
def test_invalid_re2_patterns_are_rejected(client: WireClient, pattern: str) -> None:
    find_group(client, "bad")
    response = ConsumerMember(client, "bad", "m", regex=pattern).join()
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert pattern in response.error_message
    assert "RE2" in response.error_message
    assert described(client, "bad").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_nested_repetitions_do_not_block(client: WireClient) -> None:
    """RE2 has no backtracking, so nested repetitions do not take exponential time."""
    make_topic(client, "a" * 200 + "b")
    find_group(client, "evil")
    started = time.monotonic()
    member = ConsumerMember(client, "evil", "m", regex="(a*)*(a|aa)+c").joined()
    reconcile(member)
    assert time.monotonic() - started < 5
    assert member.assigned == {}


def test_a_failed_search_is_retried(broker: RunningBroker, client: WireClient) -> None:
    topic = make_topic(client, "retry-1")
    find_group(client, "retry")

    def fail_once(inside: Broker) -> None:
        run = inside.groups._workers.run

        async def failing(*_: object) -> None:
            inside.groups._workers.run = run  # type: ignore[method-assign]
            raise OSError("no thread for it")

        inside.groups._workers.run = failing  # type: ignore[method-assign,assignment]

    # The exception is expected, so the fixture that watches the broker must not see it.
    logger = logging.getLogger("penstock.broker.coordinator.group_coordinator")
    logger.propagate = False
    try:
        broker.call(fail_once)
        member = ConsumerMember(client, "retry", "m", regex="retry-.*").joined()
        reconcile_to([{topic: [0]}], member)
    finally:
        logger.propagate = True


@pytest.fixture(params=["9223372036854775807", "1"], ids=["no flush", "flush every record"])
def guarded(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    """A broker with ACLs. With a flush after every record, effects run after the request."""
    settings = {
        **GROUP_SETTINGS,
        **SASL_SETTINGS,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
        "log.flush.interval.messages": request.param,
    }
    with watching(), running_broker(tmp_path, settings) as running:
        yield running


def test_a_pattern_matches_only_visible_topics(guarded: RunningBroker) -> None:
    """X3: topics become visible as soon as the client may describe them."""
    with logged_in(guarded, "admin") as admin, logged_in(guarded, "ann") as ann:
        ids = {name: make_topic(admin, name) for name in ("see-1", "see-2", "hide-1")}
        find_group(admin, "g")
        allow(admin, "User:ann", AclOperation.READ, ResourceType.GROUP, "g")
        member = ConsumerMember(ann, "g", "m", regex=".*").joined()
        reconcile(member)
        assert member.assigned == {}
        allow(
            admin,
            "User:ann",
            AclOperation.DESCRIBE,
            ResourceType.TOPIC,
            "see-",
            pattern=PatternType.PREFIXED,
        )
        pass_time(guarded, REFRESH_MS)
        make_topic(admin, "see-3")  # a new topic triggers the search
        wait_until(lambda: member.obey() and len(member.assigned) == 3)
        assert ids["hide-1"] not in member.assigned


def test_a_pattern_is_resolved_with_the_permissions_of_the_member(
    guarded: RunningBroker,
) -> None:
    """X3: as in Kafka; a topic that only another principal may see is not assigned to it."""
    with logged_in(guarded, "admin") as admin, logged_in(guarded, "ann") as ann:
        visible, hidden = make_topic(admin, "see-1"), make_topic(admin, "hide-1")
        for group in ("of-ann", "of-admin"):
            find_group(admin, group)
        allow(admin, "User:ann", AclOperation.READ, ResourceType.GROUP, "of-ann")
        allow(admin, "User:ann", AclOperation.DESCRIBE, ResourceType.TOPIC, "see-1")
        members = [
            ConsumerMember(ann, "of-ann", "m", regex="(see|hide)-.*").joined(),
            ConsumerMember(admin, "of-admin", "m", regex="(see|hide)-.*").joined(),
        ]
        reconcile_to([{visible: [0]}, {visible: [0], hidden: [0]}], *members)
        pass_time(guarded, REFRESH_MS)
        added = make_topic(admin, "hide-2")
        reconcile_to([{visible: [0]}, {visible: [0], hidden: [0], added: [0]}], *members)
        reconcile(*members)
        assert members[0].assigned == {visible: [0]}


# --- the feature


def set_level(client: WireClient, level: int) -> None:
    kind = UpgradeType.UPGRADE if level else UpgradeType.UNSAFE_DOWNGRADE
    update = FeatureUpdateKey(GROUP_VERSION, level, upgrade_type=kind)
    response = client.request(UpdateFeaturesRequest(feature_updates=[update]), 2)
    assert response.error_code == 0, response.error_message


def test_consumer_groups_need_the_group_version_feature(tmp_path: Path) -> None:
    with (
        watching(),
        running_broker(tmp_path, GROUP_SETTINGS) as broker,
        broker.connect() as client,
    ):
        topic = make_topic(client, "t")
        find_group(client, "g")
        set_level(client, 0)
        member = ConsumerMember(client, "g", "m", names=["t"])
        response = member.join()
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "group.protocol=classic" in response.error_message
        group = described(client, "g")
        assert group.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "group.version" in group.error_message
        set_level(client, 1)
        assert member.joined().assigned == {topic: [0]}
