"""Writes docs/security-apis.md, the rights that each API needs: `make generate`.

The table comes from `penstock.broker.handlers.rights`, the list of differences from the
authorization matrix of the tests.
"""

from pathlib import Path
from typing import Final

from penstock.broker.handlers.rights import RIGHTS, Need
from penstock.broker.handlers.table import CLUSTER_APIS, HANDLERS, HandlerSpec
from penstock.protocol.api_key import ApiKey
from penstock.security.acl import ResourceType
from tests.support.security.differences import DIFFERENCES

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "security-apis.md"

_TITLES: Final = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}
_INTRODUCTION: Final = """\
# Rights that each API needs

`make generate` writes this page from the broker's table, `broker/handlers/rights.py`.

- A right is a resource and an operation, as `penstock acl` and `kafka-acls.sh` have them.
- READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.
- A request needs a right of every row of its API that applies to it. Of several rights in one
  row, one is enough.
- A resource that is named without the right gets its authorization error, whether it exists or
  not. Lists of everything contain what the client may describe, and are not an error.
- On a listener with SASL, all but SaslHandshake, SaslAuthenticate and ApiVersions need a login:
  without it, the broker closes the connection.
- Super users (`super.users`) need no rights. Without an authorizer nobody does.

| key | API | versions | right | for |
|---|---|---|---|---|
"""
_COMPARISON: Final = """
¹ Only other brokers send it. A broker that is alone in its cluster does not serve it.

## Compared with Kafka

`tests/wire/test_authorization_matrix.py` sends every API in every version without a login, without
rights, and with each single right, and compares the error codes, the visible names and the
authorized operations with the answers of Apache Kafka 4.3.1, and of Kafka 3.9 for versions that
Kafka 4 does not serve. Versions that neither serves are compared with the nearest one. It also
compares the rights that the broker checks with the table above. The requests of brokers (¹) are
not compared with Kafka, only with the table.

Kafka's answers are in `tests/support/security/kafka_answers.json`;
`python -m tests.support.security.record` takes them again.

Penstock differs on purpose here:

| API | difference |
|---|---|
"""


def page() -> str:
    """Returns the page."""
    rows = [row for key, spec in sorted(HANDLERS.items()) for row in _rows(key, spec)]
    differences = [
        f"| {_api_title(difference.key)} | {difference.reason} |" for difference in DIFFERENCES
    ]
    return _INTRODUCTION + "\n".join(rows) + "\n" + _COMPARISON + "\n".join(differences) + "\n"


def _rows(key: ApiKey, spec: HandlerSpec) -> list[str]:
    mark = "¹" if key in CLUSTER_APIS else ""
    low, high = spec.min_version, spec.max_version
    versions = str(low) if low == high else f"{low}–{high}"
    start = f"| {key} | {_api_title(key)}{mark} | {versions} |"
    needs = RIGHTS[key]
    if not needs:
        return [f"{start} none | |"]
    first, *others = needs
    return [f"{start} {_cells(first)}", *(f"| | | | {_cells(need)}" for need in others)]


def _cells(need: Need) -> str:
    rights = " or ".join(
        f"{_TITLES[resource]} {operation.name}" for resource, operation in need.any_of
    )
    return f"{rights or 'none'} | {need.purpose} |".replace("|  |", "| |")


def _api_title(key: ApiKey) -> str:
    return key.name.title().replace("_", "")


if __name__ == "__main__":
    PAGE.write_text(page())
