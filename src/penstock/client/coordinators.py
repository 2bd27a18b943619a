"""Who coordinates a group or a transactional id."""

from enum import IntEnum

from penstock.client.errors import error_of
from penstock.core.errors import ErrorCode, KafkaError
from penstock.net.client.cluster import Node
from penstock.net.client.network_client import NetworkClient, RequestBuilder
from penstock.protocol.fields import Message
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


class CoordinatorKind(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """Finds coordinators and remembers them until they turn out to be others."""

    def __init__(self, network: NetworkClient) -> None:
        self._network = network
        self._found: dict[tuple[CoordinatorKind, str], int] = {}

    async def find(self, kind: CoordinatorKind, key: str, deadline_ms: int) -> int:
        """The coordinator's node id. Asks until there is one, or until the deadline.

        AuthorizationError where this client may not use the group or the transactional id (E3).
        """
        known = self._found.get((kind, key))
        if known is not None:
            return known
        attempts = 0
        while True:
            try:
                node = await self._network.within(deadline_ms, lambda: self._ask(kind, key))
            except KafkaError as error:
                await self._network.wait_before_retry(error, attempts, deadline_ms)
                attempts += 1
                continue
            self._found[kind, key] = node
            return node

    def known(self, kind: CoordinatorKind, key: str) -> int | None:
        return self._found.get((kind, key))

    def forget(self, kind: CoordinatorKind, key: str, node_id: int | None = None) -> None:
        """Ask again next time: it has moved, or cannot be reached. With `node_id`, only where that
        is still the one we know."""
        if node_id is None or self._found.get((kind, key)) == node_id:
            self._found.pop((kind, key), None)

    async def _ask(self, kind: CoordinatorKind, key: str) -> int:
        def make(version: int) -> Message:
            if version >= 4:
                return FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            return FindCoordinatorRequest(key=key, key_type=kind)

        network = self._network
        response = await network.request(
            network.least_loaded_node(),
            RequestBuilder(FindCoordinatorRequest, make),
            FindCoordinatorResponse,
            min_version=1 if kind is CoordinatorKind.TRANSACTION else 0,
        )
        if response.coordinators:
            found = response.coordinators[0]
            code, said = found.error_code, found.error_message
            node = Node(found.node_id, found.host, found.port)
        else:
            code, said = response.error_code, response.error_message
            node = Node(response.node_id, response.host, response.port)
        if code:
            raise error_of(code, _explained(kind, key, code, said))
        network.add_node(node)
        return node.id


def _explained(kind: CoordinatorKind, key: str, code: int, said: str | None) -> str:
    what = "group" if kind is CoordinatorKind.GROUP else "transactional id"
    if code in (
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        return f"this client may not use {what} {key}: its user needs an ACL for it"
    return f"{what} {key} has no coordinator" + (f": {said}" if said else " yet")
