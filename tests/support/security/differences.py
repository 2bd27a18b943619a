"""Where Penstock deliberately responds differently from Kafka, as data.

docs/security-apis.md shows the reasons; a test fails for an entry that no request needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.protocol.api_key import ApiKey


@dataclass(frozen=True)
class Difference:
    """Outcomes of an API that differ from Kafka's."""

    key: ApiKey
    replaced: Mapping[str, str]
    """What Penstock has in the place of parts of Kafka's outcome."""
    reason: str

    def apply(self, outcome: str) -> str:
        """Returns what Penstock responds where Kafka has this outcome."""
        for theirs, ours in self.replaced.items():
            outcome = outcome.replace(theirs, ours)
        return outcome


DIFFERENCES: Final[tuple[Difference, ...]] = ()
