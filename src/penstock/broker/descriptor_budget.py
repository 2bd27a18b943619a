"""How the descriptors of the process are divided between files and connections.

Half of RLIMIT_NOFILE is reserved for files, so that connections, authenticated or not, can never
take the descriptor that the next segment needs. Connections beyond the other half are refused.
"""

import resource
from pathlib import Path
from typing import Final, NamedTuple

_UNLIMITED: Final = 1 << 20
"""What counts as no limit; also the kernel's default maximum (fs.nr_open)."""
_MAX_OTHERS: Final = 128
"""For listeners, the metadata store, and files that are only open for a moment."""
_DEFAULT_MAP_COUNT: Final = 65_530


class DescriptorBudget(NamedTuple):
    """The most descriptors for each purpose."""

    files: int
    """Files and mappings of logs that stay open."""
    connections: int


def divide_descriptors(limit: int, max_map_count: int = _DEFAULT_MAP_COUNT) -> DescriptorBudget:
    """Divides `limit` descriptors; `max_map_count` is the most mappings of the process."""
    available = limit - min(_MAX_OTHERS, limit // 4)
    files = available // 2
    return DescriptorBudget(min(files, max_map_count // 2), available - files)


def raise_descriptor_limit() -> DescriptorBudget:
    """Raises the soft limit of open files to the hard limit, and divides it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = _UNLIMITED if hard == resource.RLIM_INFINITY else hard
    return divide_descriptors(limit, _max_map_count())


def _max_map_count() -> int:
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return _DEFAULT_MAP_COUNT
