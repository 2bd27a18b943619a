"""Names for bugs that are planted on purpose, and the seeds that find them.

bugs = BugRegistry()

@bugs.plant("the high watermark is the log end offset", first_seed=1)
def _early_high_watermark() -> AbstractContextManager[object]:
    return patch.object(…)
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

Patch = Callable[[], AbstractContextManager[object]]


class PlantedBug(NamedTuple):
    """A patch of the product."""

    patch: Patch
    first_seed: int
    """A seed that finds it."""


class BugRegistry(dict[str, PlantedBug]):
    """The bugs of one subject, by name."""

    def plant(self, name: str, first_seed: int) -> Callable[[Patch], Patch]:
        """Registers the decorated function as a bug."""

        def add(patch: Patch) -> Patch:
            self[name] = PlantedBug(patch, first_seed)
            return patch

        return add
