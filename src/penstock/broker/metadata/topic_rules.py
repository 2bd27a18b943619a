"""The rules that the broker's settings give to the controller's commands about topics."""

import random
from functools import partial
from uuid import uuid4

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.topic_config import (
    effective_value,
    topic_config,
    validate_topic_configs,
)
from penstock.controller.image import ClusterImage
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.placement import PlacementStart
from penstock.controller.topics import NewTopicRules


def new_topic_rules(config: BrokerConfig) -> NewTopicRules:
    """Returns the defaults and checks for new topics, with a random first broker."""
    return NewTopicRules(
        num_partitions=config.int("num.partitions"),
        replication_factor=config.int("default.replication.factor"),
        validate_configs=lambda configs: validate_topic_configs(configs, config),
        new_topic_id=uuid4,
        placement_start=random_start(),
    )


def random_start() -> PlacementStart:
    """Returns a random broker to begin the placement of replicas with."""
    return PlacementStart(random.randrange(1 << 16), random.randrange(1 << 16))


def min_insync_replicas(config: BrokerConfig, image: ClusterImage, topic: str) -> int:
    """Returns `min.insync.replicas` of a topic."""
    value = effective_value(config, image.config("topics", topic), "min.insync.replicas")
    return value if isinstance(value, int) else 1


def election_rules(config: BrokerConfig, image: ClusterImage) -> ElectionRules:
    """Returns the settings of topics that elections depend on, as they are now."""
    return ElectionRules(
        lambda topic: (
            topic_config(config, image.config("topics", topic)).unclean_leader_election_enable
        ),
        unreliable=frozenset(
            broker.broker_id for broker in image.brokers.values() if not broker.reports_losses
        ),
        min_insync_replicas=partial(min_insync_replicas, config, image),
    )
