"""The settings of the group coordinator, under Kafka's names."""

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from penstock.coordinator.group.assignors import ASSIGNORS

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a JoinGroup of a new member may wait before the member is removed."""

WRITE_RETRY_MS = 1000
"""The delay until a timer fires again whose records could not be written."""

REGEX_BATCH_REFRESH_MIN_INTERVAL_MS = 10_000
"""The minimum time between two resolutions of a group's patterns."""


class MigrationPolicy(Enum):
    """Which migrations of groups with members are allowed (`group.consumer.migration.policy`)."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class ConsumerGroupConfig(Struct, frozen=True):
    """`group.consumer.*`: the settings that a group can override."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """The minimum time between two computations of the target assignment."""


class GroupConfig(Struct, frozen=True):
    """The settings of the group coordinator. The host may replace them at any time."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = tuple(ASSIGNORS)
    """Names of `ASSIGNORS`; the first is the default of members that request none."""
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    group_consumer_regex_refresh_interval_ms: int = 600_000
    consumer: ConsumerGroupConfig = ConsumerGroupConfig()
    consumer_overrides: Mapping[str, ConsumerGroupConfig] = {}
    """The settings of groups that override any, by group."""

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    def consumer_of(self, group_id: str) -> ConsumerGroupConfig:
        return self.consumer_overrides.get(group_id, self.consumer)
