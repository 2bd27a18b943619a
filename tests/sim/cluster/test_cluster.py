"""Random faults against a whole cluster on virtual time (R1–R8)."""

import logging
import os
from typing import Any
from unittest.mock import patch

import pytest

from penstock.broker.coordinator.host import CoordinatorHost
from penstock.core.errors import KafkaStorageError
from penstock.storage.log.log import Log
from tests.sim.cluster.cluster_broker import SimBroker
from tests.sim.cluster.cluster_simulation import ClusterSimulation, run_seed


def _seeds() -> range:
    first, _, last = os.environ.get("PENSTOCK_SIM_SEEDS", "0:50").partition(":")
    return range(int(first), int(last))


@pytest.mark.parametrize("seed", _seeds())
def test_the_cluster_keeps_its_guarantees(seed: int) -> None:
    run_seed(seed)


@pytest.mark.long
@pytest.mark.parametrize("first_seed", range(50, 550, 50))
def test_the_cluster_keeps_its_guarantees_with_more_seeds(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 50):
        run_seed(seed)


def test_a_log_may_fail_when_its_coordinator_has_just_been_loaded() -> None:
    """The coordinator is loaded again, there or elsewhere."""
    for seed in range(20):
        if run_with_failing_coordinator(seed):
            return
    pytest.fail("no seed loads a coordinator whose partition has followers")


def run_with_failing_coordinator(seed: int) -> bool:
    """Fails the first log of a coordinator when it has been loaded; returns whether there was one.

    Its broker is killed a second later.
    """
    simulation = ClusterSimulation(seed)
    read_shard = CoordinatorHost._read_shard
    failed_logs: list[Log] = []

    def kill(broker: SimBroker) -> None:
        if simulation.network.brokers.get(broker.broker_id) is broker:
            simulation._faults.kill(broker)

    async def read_and_fail(host: CoordinatorHost[Any, Any, Any, Any, Any], partition: int) -> Any:
        shard = await read_shard(host, partition)
        replica = host._replicas.find(host.topic, partition)
        if replica.partition.followers and not failed_logs:
            failed_logs.append(replica.log)
            replica.log.guard.stop(KafkaStorageError("the disk has failed"))
            broker = simulation.network.brokers[host._broker_id]
            context = simulation.loop.outside
            simulation.loop.call_later(1.0, kill, broker, context=context)
        return shard

    logging.disable(logging.CRITICAL)
    try:
        with patch.object(CoordinatorHost, "_read_shard", read_and_fail):
            simulation.run()
    finally:
        logging.disable(logging.NOTSET)
    return bool(failed_logs)
