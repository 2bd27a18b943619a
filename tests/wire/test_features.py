"""UpdateFeatures, and the finalized features in ApiVersions."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.broker import Broker
from penstock.broker.metadata.features import (
    GROUP_VERSION,
    NEW_CLUSTER_FEATURES,
    TRANSACTION_VERSION,
)
from penstock.cluster.factory import StoreConfig, open_store
from penstock.controller.metadata import FeaturesRecord, Put
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.enums import UpgradeType
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.security.acl import AclOperation, ResourceType
from tests.support.broker.in_process import RunningBroker, WireClient, running_broker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS, logged_in
from tests.support.protocol.admin import allow

UP, DOWN, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(tmp_path) as running:
        yield running


def finalized(client: WireClient, version: int = 4) -> tuple[dict[str, int], int]:
    """Returns the finalized levels and their epoch from ApiVersions."""
    response = client.request(ApiVersionsRequest("test", "1.0"), version)
    levels = {}
    for feature in response.finalized_features:
        assert feature.min_version_level == feature.max_version_level
        levels[feature.name] = feature.max_version_level
    return levels, response.finalized_features_epoch


def level_in_force(broker: RunningBroker, name: str) -> int:
    """The level in the broker's image; 0 if the feature is off."""

    def level(inside: Broker) -> int:
        features = inside.image.features
        return 0 if features is None else features.levels.get(name, 0)

    return broker.call(level)


def update(
    client: WireClient,
    levels: Mapping[str, int],
    upgrade_type: int = UP,
    version: int = 2,
    *,
    validate_only: bool = False,
) -> Any:
    updates = [
        FeatureUpdateKey(name, level, upgrade_type=upgrade_type if version else 1)
        for name, level in levels.items()
    ]
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
    return client.request(request, version)


def stored(directory: Path, *records: FeaturesRecord) -> FeaturesRecord:
    """Commits the records to the store of a stopped broker; returns the stored features."""
    store = open_store(StoreConfig(directory / "data"))
    try:
        for record in records:
            store.commit([Put(record)])
        (result,) = (
            record for record in store.load().records if isinstance(record, FeaturesRecord)
        )
    finally:
        store.close()
    return result


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_new_cluster_has_the_highest_levels(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    """A new cluster starts with the highest levels."""
    assert finalized(client, version) == ({GROUP_VERSION: 1, TRANSACTION_VERSION: 2}, 0)
    for name, level in NEW_CLUSTER_FEATURES.items():
        assert level_in_force(broker, name) == level
    assert level_in_force(broker, "metadata.version") == 0


def test_a_new_cluster_that_admits_kafka_has_no_levels_until_they_are_raised(
    tmp_path: Path,
) -> None:
    """M2: Kafka 3.9 does not start in a cluster with features that it does not know."""
    with (
        running_broker(tmp_path, {"inter.broker.protocol.version": "3.9"}) as broker,
        broker.connect() as client,
    ):
        assert finalized(client) == ({}, 0)
        assert update(client, NEW_CLUSTER_FEATURES).error_code == 0
        assert finalized(client) == (dict(NEW_CLUSTER_FEATURES), 1)


@pytest.mark.parametrize("upgrade", [DOWN, UNSAFE])
@pytest.mark.parametrize("version", [1, 2])
def test_levels_are_lowered_and_raised(
    broker: RunningBroker, client: WireClient, version: int, upgrade: UpgradeType
) -> None:
    """Every change increments the epoch, and applies when the response is sent."""
    for epoch, (levels, kind) in enumerate(
        [
            ({GROUP_VERSION: 0, TRANSACTION_VERSION: 1}, upgrade),
            ({TRANSACTION_VERSION: 0}, upgrade),
            ({GROUP_VERSION: 1}, UP),
            ({TRANSACTION_VERSION: 2}, UP),
        ],
        1,
    ):
        response = update(client, levels, kind, version)
        assert (response.error_code, response.error_message) == (0, None)
        results = [(result.feature, result.error_code) for result in response.results]
        assert results == ([(name, 0) for name in levels] if version < 2 else [])
        current_levels, current_epoch = finalized(client)
        assert current_epoch == epoch
        for name, level in levels.items():
            assert current_levels.get(name, 0) == level
            assert level_in_force(broker, name) == level
    assert finalized(client) == (dict(NEW_CLUSTER_FEATURES), 4)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_update_of_several_features_is_atomic(client: WireClient, version: int) -> None:
    """E2: if one feature cannot change, none does, in every version."""
    response = update(client, {GROUP_VERSION: 1, TRANSACTION_VERSION: 3}, UP, version)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "transaction.version cannot be set to level 3" in response.error_message
    assert response.results == []
    assert finalized(client) == (dict(NEW_CLUSTER_FEATURES), 0)


def test_version_0_cannot_lower_a_level(client: WireClient) -> None:
    """As in Kafka 4, `allow_downgrade` is ignored."""
    lower = FeatureUpdateKey(TRANSACTION_VERSION, 1, allow_downgrade=True)
    response = client.request(UpdateFeaturesRequest(feature_updates=[lower]), 0)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    unchanged = update(client, {TRANSACTION_VERSION: 2}, version=0)
    assert [(result.feature, result.error_code) for result in unchanged.results] == [
        (TRANSACTION_VERSION, 0)
    ]
    assert finalized(client) == (dict(NEW_CLUSTER_FEATURES), 0)


@pytest.mark.parametrize("version", [1, 2])
def test_validate_only_changes_nothing(client: WireClient, version: int) -> None:
    response = update(client, {GROUP_VERSION: 0}, DOWN, version, validate_only=True)
    assert response.error_code == 0
    response = update(client, {GROUP_VERSION: 0}, UP, version, validate_only=True)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert finalized(client) == (dict(NEW_CLUSTER_FEATURES), 0)


def test_an_update_without_features_succeeds(client: WireClient) -> None:
    assert update(client, {}).error_code == 0
    assert finalized(client) == (dict(NEW_CLUSTER_FEATURES), 0)


def test_levels_survive_a_restart(tmp_path: Path) -> None:
    """M2: a cluster keeps its levels even if a new one would start with higher ones."""
    with running_broker(tmp_path) as broker, broker.connect() as client:
        assert update(client, {GROUP_VERSION: 0, TRANSACTION_VERSION: 1}, DOWN).error_code == 0
        before = finalized(client)
    assert before == ({TRANSACTION_VERSION: 1}, 1)
    with running_broker(tmp_path) as broker, broker.connect() as client:
        assert finalized(client) == before
        assert update(client, {GROUP_VERSION: 1}).error_code == 0
    result = stored(tmp_path)
    assert (result.levels, result.epoch) == ({TRANSACTION_VERSION: 1, GROUP_VERSION: 1}, 2)


@pytest.mark.parametrize("levels", [{TRANSACTION_VERSION: 3}, {"share.version": 1}])
def test_a_cluster_with_unsupported_levels_does_not_start(
    tmp_path: Path, levels: dict[str, int]
) -> None:
    """E6: the error names the feature; the broker starts once the level is supported."""
    with running_broker(tmp_path):
        pass
    stored(tmp_path, FeaturesRecord(levels, 1))
    (name,) = levels
    rejection = pytest.raises(KafkaError, match=f"feature {name} at level")
    with rejection as caught, running_broker(tmp_path):
        pass
    assert "\n" not in caught.value.message
    assert stored(tmp_path).levels == levels
    stored(tmp_path, FeaturesRecord({TRANSACTION_VERSION: 1}, 2))
    with running_broker(tmp_path) as broker, broker.connect() as client:
        assert finalized(client) == ({TRANSACTION_VERSION: 1}, 2)


def test_updates_need_alter_on_the_cluster(tmp_path: Path) -> None:
    """X3: ALTER on the cluster."""
    settings = {
        **SASL_SETTINGS,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin",
    }
    with (
        running_broker(tmp_path, settings) as broker,
        logged_in(broker, "admin") as admin,
        logged_in(broker, "ann") as ann,
    ):
        for version in (0, 1, 2):
            response = update(ann, {GROUP_VERSION: 1}, UP, version)
            assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            assert "User:ann" in response.error_message
            assert response.results == []
        assert update(admin, {GROUP_VERSION: 0}, DOWN).error_code == 0
        allow(admin, "User:ann", AclOperation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
        assert update(ann, {GROUP_VERSION: 1}).error_code == 0
        assert finalized(ann) == (dict(NEW_CLUSTER_FEATURES), 2)
