"""Feature levels: what a broker must support to join, and how levels change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.controller.features import require_supported, update_features
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import FeaturesRecord, Put
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.enums import UpgradeType
from penstock.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.support.cluster.images import broker

SUPPORTED = {"a.version": (0, 2), "b.version": (1, 3)}
UP, DOWN, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def cluster(**levels: int) -> ClusterImage:
    """A broker that supports two features, at these levels, in epoch 5."""
    image = ClusterImage()
    image.apply([Put(replace(broker(1), features=SUPPORTED))])
    named = {f"{name}.version": level for name, level in levels.items()}
    image.apply([Put(FeaturesRecord(named, 5))])
    return image


def finalized(image: ClusterImage) -> tuple[dict[str, int], int]:
    assert image.features is not None
    return dict(image.features.levels), image.features.epoch


def update(
    image: ClusterImage, *updates: tuple[str, int, int], validate_only: bool = False
) -> UpdateFeaturesResponse:
    """Decides, and does it."""
    keys = [
        FeatureUpdateKey(f"{name}.version", level, False, upgrade_type)
        for name, level, upgrade_type in updates
    ]
    result = update_features(image, UpdateFeaturesRequest(60000, keys, validate_only))
    image.apply(result.changes)
    return result.response


@pytest.mark.parametrize(
    ("before", "level", "upgrade_type", "after"),
    [
        (0, 1, UP, 1),
        (0, 2, UP, 2),
        (2, 1, DOWN, 1),
        (2, 1, UNSAFE, 1),
        (2, 0, DOWN, 0),
        (1, 0, UNSAFE, 0),
    ],
)
def test_a_level_changes(before: int, level: int, upgrade_type: UpgradeType, after: int) -> None:
    """Level 0 is that of a feature that is not finalized."""
    image = cluster(**({"a": before} if before else {}), b=3)
    response = update(image, ("a", level, upgrade_type))
    assert (response.error_code, response.error_message) == (0, None)
    assert [(result.feature, result.error_code) for result in response.results] == [
        ("a.version", 0)
    ]
    rest = {"b.version": 3}
    assert finalized(image) == ({"a.version": after, **rest} if after else rest, 6)


@pytest.mark.parametrize("upgrade_type", UpgradeType)
def test_the_level_that_it_has(upgrade_type: UpgradeType) -> None:
    """Nothing changes, the epoch neither."""
    image = cluster(a=1)
    assert update(image, ("a", 1, upgrade_type)).error_code == 0
    assert finalized(image) == ({"a.version": 1}, 5)


@pytest.mark.parametrize(
    ("name", "level", "upgrade_type", "expected_error"),
    [
        ("a", 0, UP, "a.version cannot be set to level 0: that is lower than 1"),
        ("a", 2, DOWN, "higher than 1"),
        ("a", 2, UNSAFE, "higher than 1"),
        ("a", 3, UP, "broker 1 supports levels 0 to 2"),
        ("a", -1, DOWN, "the lowest level is 0"),
        ("b", 0, DOWN, "broker 1 supports levels 1 to 3"),
        ("a", 1, 0, "upgrade type 0 is unknown"),
        ("a", 1, 4, "upgrade type 4 is unknown"),
        ("metadata", 25, UP, "no such feature, only a.version, b.version"),
        ("metadata", 0, DOWN, "no such feature"),
    ],
)
def test_an_invalid_level(name: str, level: int, upgrade_type: int, expected_error: str) -> None:
    """E6: the whole request fails, with the reason."""
    image = cluster(a=1)
    for updates in ([(name, level, upgrade_type)], [("b", 3, UP), (name, level, upgrade_type)]):
        response = update(image, *updates)
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert response.error_message is not None
        assert expected_error in response.error_message
        assert response.results == []
        assert finalized(image) == ({"a.version": 1}, 5)


def test_every_broker_must_support_a_level() -> None:
    image = cluster()
    image.apply([Put(replace(broker(2), features={"a.version": (0, 1)}))])
    assert update(image, ("a", 2, UP)).error_message == (
        "a.version cannot be set to level 2: broker 2 supports levels 0 to 1; "
        "no feature was changed"
    )
    message = update(image, ("b", 1, UP)).error_message
    assert message is not None
    assert "broker 2 does not know this feature" in message
    assert update(image, ("a", 1, UP)).error_code == 0


def test_a_dry_run_changes_nothing() -> None:
    image = cluster(a=1)
    response = update(image, ("a", 2, UP), ("b", 1, UP), validate_only=True)
    assert response.error_code == 0
    assert [result.feature for result in response.results] == ["a.version", "b.version"]
    response = update(image, ("a", 3, UP), validate_only=True)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert finalized(image) == ({"a.version": 1}, 5)


def test_named_twice() -> None:
    """The last one counts, and every update has a result."""
    image = cluster(a=1)
    assert len(update(image, ("a", 0, UP), ("a", 2, UP)).results) == 2
    assert finalized(image) == ({"a.version": 2}, 6)


def test_permission_of_version_0_to_downgrade() -> None:
    """Kafka 4 does not look at it."""
    image = cluster(a=2)
    request = UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey("a.version", 1, allow_downgrade=True)]
    )
    response = update_features(image, request).response
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_no_features_yet() -> None:
    image = ClusterImage()
    image.apply([Put(replace(broker(1), features=SUPPORTED))])
    assert update(image, ("a", 1, UP)).error_code == 0
    assert finalized(image) == ({"a.version": 1}, 0)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 4), st.integers(0, 4)), max_size=12),
    st.booleans(),
)
def test_levels_stay_supported(updates: list[tuple[str, int, int]], together: bool) -> None:
    """After any updates every broker could register again, and each change has its own epoch."""
    image = cluster(b=1)
    levels_by_epoch = {5: {"b.version": 1}}
    for batch in [updates] if together else [[update] for update in updates]:
        update(image, *batch)
        levels, epoch = finalized(image)
        assert levels_by_epoch.setdefault(epoch, levels) == levels
        assert epoch <= max(levels_by_epoch)
        assert all(levels.values())
        require_supported(image.brokers[1], levels)


# --- who may join


def test_a_broker_that_supports_the_levels() -> None:
    joining = replace(broker(1), features=SUPPORTED)
    for levels in ({}, {"a.version": 2}, {"a.version": 1, "b.version": 1}):
        require_supported(joining, levels)
    require_supported(broker(1), {})


@pytest.mark.parametrize(
    ("levels", "expected_error"),
    [
        ({"a.version": 3}, "a.version at level 3, but broker 1 supports levels 0 to 2"),
        ({"a.version": 1, "c.version": 1}, "c.version at level 1, but broker 1 does not know"),
    ],
)
def test_a_broker_that_does_not_support_the_levels(
    levels: dict[str, int], expected_error: str
) -> None:
    with pytest.raises(KafkaError, match=expected_error) as caught:
        require_supported(replace(broker(1), features=SUPPORTED), levels)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
