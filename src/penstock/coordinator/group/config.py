"""The settings of the group coordinator, under Kafka's names."""

from msgspec import Struct

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a JoinGroup of a new member waits before the member is taken for gone."""

WRITE_RETRY_MS = 1000
"""When a timer comes again whose records could not be written."""


class GroupConfig(Struct, frozen=True):
    """What the coordinator of groups can be told. A host may replace it at any time."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
