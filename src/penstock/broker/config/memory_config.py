"""How much memory the requests in progress may take: the settings, and the machine's memory."""

import os
from pathlib import Path

from penstock.broker.config.broker_config import BrokerConfig
from penstock.core.memory_budget import MemoryBudget, MemoryKind

_MIB = 1024 * 1024
_SMALLEST = 64 * _MIB
_LARGEST = 1024 * _MIB

_CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def new_memory_budget(config: BrokerConfig) -> MemoryBudget:
    return MemoryBudget(request_memory(config), config.int("queued.max.request.bytes"))


def max_decompressed_bytes(config: BrokerConfig) -> int:
    """Returns the limit of a decompressed batch: the setting, or less on a small machine."""
    return min(
        config.int("message.max.decompressed.bytes"),
        MemoryBudget(request_memory(config)).limit(MemoryKind.WORK),
    )


def request_memory(config: BrokerConfig, brokers: int = 1) -> int:
    """Returns the bytes for the requests in progress of one of several brokers on this machine."""
    configured = config.int("request.memory.max.bytes")
    if configured >= 0:
        return configured
    return max(_SMALLEST, min(machine_memory() // (4 * brokers), _LARGEST))


def machine_memory(container_limits: tuple[Path, ...] = _CONTAINER_LIMITS) -> int:
    """Returns the memory of the machine, or of the container if that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in container_limits:
        try:
            memory = min(memory, int(path.read_text()))
        except (OSError, ValueError):
            continue  # no such control group, or no limit
    return memory
