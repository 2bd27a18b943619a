"""DescribeAcls pauses also between ACLs that it does not return."""

from collections.abc import Iterator

from penstock.broker.handlers.k29_describe_acls import _matching_acls
from penstock.protocol.messages.describe_acls import DescribeAclsResponse
from penstock.security.acl import AclFilter
from penstock.security.acl_authorizer import AclAuthorizer

COUNT = 500


def run(authorizer: AclAuthorizer, name: str, principal: str) -> tuple[int, DescribeAclsResponse]:
    """Returns the number of pauses, and the response."""
    selected = AclFilter.of_codes(2, name, 3, principal, None, 1, 1)
    pauses: list[None] = []
    response: list[object] = []

    def count() -> Iterator[None]:
        response.append((yield from _matching_acls(authorizer, selected)))

    pauses.extend(count())
    (result,) = response
    assert isinstance(result, DescribeAclsResponse)
    return len(pauses), result


def test_between_patterns() -> None:
    authorizer = AclAuthorizer()
    for number in range(COUNT):
        key = ("TOPIC", "LITERAL", f"topic {number}")
        authorizer.put(key, [("User:a", "*", "READ", "ALLOW")])
    pauses, response = run(authorizer, "topic 7", "User:a")
    assert pauses >= COUNT
    assert [resource.resource_name for resource in response.resources] == ["topic 7"]


def test_between_the_entries_of_a_pattern() -> None:
    authorizer = AclAuthorizer()
    entries = [(f"User:{number}", "*", "READ", "ALLOW") for number in range(COUNT)]
    authorizer.put(("TOPIC", "LITERAL", "orders"), entries)
    pauses, response = run(authorizer, "orders", "User:7")
    assert pauses >= COUNT
    assert [acl.principal for acl in response.resources[0].acls] == ["User:7"]
