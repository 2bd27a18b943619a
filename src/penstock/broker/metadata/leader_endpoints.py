"""The endpoints of the leaders that Produce and Fetch responses name (KIP-951).

A client that sent a request to the wrong broker continues with the right one at once. It may not
know its address: a broker that was down is in none of the metadata that the client has.
"""

from collections.abc import Iterator

from penstock.controller.image import ClusterImage
from penstock.protocol.messages.fetch import FetchNodeEndpoint, FetchResponse
from penstock.protocol.messages.produce import ProduceNodeEndpoint, ProduceResponse

_Endpoint = tuple[int, str, int, str | None]


def add_produce_endpoints(response: ProduceResponse, image: ClusterImage, listener: str) -> None:
    """Adds the endpoints of all leaders that the partitions of a response name."""
    leaders = {
        partition.current_leader.leader_id
        for topic in response.responses
        for partition in topic.partition_responses
    }
    response.node_endpoints = [
        ProduceNodeEndpoint(*endpoint) for endpoint in _endpoints(image, listener, leaders)
    ]


def add_fetch_endpoints(response: FetchResponse, image: ClusterImage, listener: str) -> None:
    """Adds the endpoints of all leaders that the partitions of a response name."""
    leaders = {
        partition.current_leader.leader_id
        for topic in response.responses
        for partition in topic.partitions
    }
    response.node_endpoints = [
        FetchNodeEndpoint(*endpoint) for endpoint in _endpoints(image, listener, leaders)
    ]


def _endpoints(image: ClusterImage, listener: str, broker_ids: set[int]) -> Iterator[_Endpoint]:
    for broker, endpoint in image.broker_endpoints(listener):
        if broker.broker_id in broker_ids:
            yield broker.broker_id, endpoint.host, endpoint.port, broker.rack
