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


DIFFERENCES: Final = (
    Difference(
        ApiKey.SASL_AUTHENTICATE,
        {"closed": "ILLEGAL_SASL_STATE"},
        "a token before the handshake gets an error that says so; Kafka closes the connection",
    ),
    Difference(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        {
            "CLUSTER_AUTHORIZATION_FAILED "
            "[allowed-missing [CLUSTER_AUTHORIZATION_FAILED]] "
            "[allowed-topic [CLUSTER_AUTHORIZATION_FAILED]] "
            "[other-topic [CLUSTER_AUTHORIZATION_FAILED]]": "CLUSTER_AUTHORIZATION_FAILED"
        },
        "a denial is stated once for the request; Kafka repeats it for each partition",
    ),
    Difference(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        {
            "CLUSTER_AUTHORIZATION_FAILED [CLUSTER_AUTHORIZATION_FAILED]": (
                "CLUSTER_AUTHORIZATION_FAILED"
            )
        },
        "a denial is stated once for the request; Kafka repeats it for each user, and does not "
        "respond to a denied request for all users",
    ),
)
