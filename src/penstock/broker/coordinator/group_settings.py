"""The group coordinator's configuration, from the settings of the broker and of groups."""

from collections.abc import Mapping

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.group_config import group_int
from penstock.controller.image import ClusterImage
from penstock.coordinator.group.config import ConsumerGroupConfig, GroupConfig, MigrationPolicy


def group_config(config: BrokerConfig, image: ClusterImage) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
        group_max_size=config.int("group.max.size"),
        offset_metadata_max_bytes=config.int("offset.metadata.max.bytes"),
        offsets_retention_minutes=config.int("offsets.retention.minutes"),
        offsets_retention_check_interval_ms=config.int("offsets.retention.check.interval.ms"),
        group_consumer_max_size=config.int("group.consumer.max.size"),
        group_consumer_assignors=tuple(config.list("group.consumer.assignors")),
        group_consumer_migration_policy=MigrationPolicy(
            config.str("group.consumer.migration.policy").lower()
        ),
        group_consumer_regex_refresh_interval_ms=config.int(
            "group.consumer.regex.refresh.interval.ms"
        ),
        consumer=_consumer(config, {}),
        consumer_overrides={
            record.entity[0][1]: _consumer(config, record.values)
            for record in image.configs.values()
            if record.entity[0][0] == "groups"
        },
    )


def _consumer(config: BrokerConfig, own: Mapping[str, str]) -> ConsumerGroupConfig:
    return ConsumerGroupConfig(
        session_timeout_ms=group_int(config, own, "consumer.session.timeout.ms"),
        heartbeat_interval_ms=group_int(config, own, "consumer.heartbeat.interval.ms"),
        assignment_interval_ms=group_int(config, own, "consumer.assignment.interval.ms"),
    )
