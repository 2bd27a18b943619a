"""The settings of the group coordinator, under Kafka's names."""

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from penstock.coordinator.group.assignors import ASSIGNORS

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a JoinGroup of a new member waits before the member is taken for gone."""

WRITE_RETRY_MS = 1000
"""When a timer comes again whose records could not be written."""


REGEX_BATCH_REFRESH_MIN_INTERVAL_MS = 10_000
"""The patterns of a group are not resolved again sooner."""


class MigrationPolicy(Enum):
    """Which groups with members may change between the protocols: both ways, one, or none."""

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
    """`group.consumer.*`: what a group may have its own value of."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    """How long a target assignment lasts before the next one is computed."""


class GroupConfig(Struct, frozen=True):
    """What the coordinator of groups can be told. A host may replace it at any time."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = tuple(ASSIGNORS)
    """Names of `ASSIGNORS`; the first is for members that ask for none."""
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    group_consumer_regex_refresh_interval_ms: int = 600_000
    consumer: ConsumerGroupConfig = ConsumerGroupConfig()
    consumer_overrides: Mapping[str, ConsumerGroupConfig] = {}
    """By group: the settings of groups that have any of their own."""

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    def consumer_of(self, group_id: str) -> ConsumerGroupConfig:
        return self.consumer_overrides.get(group_id, self.consumer)
