"""The memory of requests: the settings, and what a machine or a container has."""

from pathlib import Path

import pytest

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.memory_config import (
    machine_memory,
    max_decompressed_bytes,
    new_memory_budget,
)
from penstock.broker.config.settings import ConfigError

MIB = 2**20


def test_the_default_suits_the_machine() -> None:
    budget = new_memory_budget(BrokerConfig({}, "host"))
    assert budget.total == max(64 * MIB, min(machine_memory() // 4, 1024 * MIB))


def test_a_container_may_have_less_than_the_machine(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text("268435456\n")
    assert machine_memory((tmp_path / "missing", limit)) == 256 * MIB
    limit.write_text("max\n")
    assert machine_memory((limit,)) == machine_memory(())


def test_a_batch_may_not_decompress_to_more_than_there_is_memory_for_work() -> None:
    large = {"request.memory.max.bytes": str(1024 * MIB)}
    assert max_decompressed_bytes(BrokerConfig(large, "host")) == 128 * MIB
    small = {
        "request.memory.max.bytes": str(64 * MIB),
        "socket.request.max.bytes": str(8 * MIB),
    }
    assert max_decompressed_bytes(BrokerConfig(small, "host")) == 16 * MIB
    own = {**large, "message.max.decompressed.bytes": str(MIB)}
    assert max_decompressed_bytes(BrokerConfig(own, "host")) == MIB


def test_a_budget_without_room_for_the_largest_request_is_refused() -> None:
    """P7: limits that do not fit each other are named at the start."""
    with pytest.raises(ConfigError, match=r"socket\.request\.max\.bytes is 104857600") as refusal:
        BrokerConfig({"request.memory.max.bytes": str(128 * MIB)}, "host")
    assert refusal.value.name == "request.memory.max.bytes"
