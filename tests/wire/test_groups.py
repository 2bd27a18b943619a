"""Groups over the wire: a coordinator is looked up, members join, the broker stops (C3)."""

from pathlib import Path

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.protocol.messages.list_groups import ListGroupsRequest
from tests.support.broker.in_process import WireClient, running_broker

GROUP = "readers"
JOIN_VERSION = 3
"""The last version before MEMBER_ID_REQUIRED was introduced."""


def find(client: WireClient) -> None:
    result = client.request(FindCoordinatorRequest(key=GROUP), 2)
    assert (result.error_code, result.node_id) == (0, 0)


def join() -> JoinGroupRequest:
    return JoinGroupRequest(
        GROUP, 10_000, 60_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")]
    )


def test_a_member_joins_a_group(tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with running_broker(tmp_path, settings) as broker, broker.connect() as client:
        find(client)
        joined = client.request(join(), JOIN_VERSION)
        assert joined.error_code == 0
        assert joined.leader == joined.member_id
        assert joined.generation_id == 1
        assert [group.group_id for group in client.request(ListGroupsRequest(), 4).groups] == [
            GROUP
        ]


def test_a_pending_join_gets_an_error_when_the_broker_stops(tmp_path: Path) -> None:
    """Otherwise the member would get no response, and the stop would wait for it."""
    settings = {"group.initial.rebalance.delay.ms": "60000"}
    with running_broker(tmp_path, settings) as broker:
        client = broker.connect()
        find(client)
        client.send(join(), JOIN_VERSION)
        # The group is listed once the pending join has been received.
        with broker.connect() as second_client:
            while not second_client.request(ListGroupsRequest(), 4).groups:
                pass
    with client:
        response = client.receive(join(), JOIN_VERSION)
    assert isinstance(response, JoinGroupResponse)
    assert response.error_code == ErrorCode.NOT_COORDINATOR
