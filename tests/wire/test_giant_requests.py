"""No request occupies the event loop for long, however many elements its arrays have (X5).

Every array of every served API is filled, from the declared messages. `python -m bench hostile`
has the latency of other clients with larger requests.
"""

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

import pytest

from penstock.broker import garbage
from penstock.coordinator.group import request_chunks
from penstock.core.errors import ErrorCode
from penstock.core.ids import TopicPartition
from penstock.protocol.api_key import ApiKey
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.broker.faults import watching
from tests.support.broker.in_process import RunningBroker, WireClient
from tests.support.broker.loop_time import LongestCallback, loop_time
from tests.support.cluster.brokers import running_member
from tests.support.protocol.giant_requests import (
    GROUP,
    TOPIC,
    Path,
    array_paths,
    giant_request,
)
from tests.support.protocol.hostile import frame
from tests.support.protocol.requests import make_topic, produce_values

ELEMENTS = 20_000
LIMIT = 30_000
REPLICAS = 1000
MOST_S = 0.1
"""Processor time of one callback. A slice lasts 5 ms; handling 20,000 elements at once takes from
0.1 s to 10 s."""

CASES = [
    pytest.param(*case, id=f"{case[0].name}-{'.'.join(field.name for field in case[2])}")
    for case in array_paths()
]


@pytest.fixture(scope="module")
def settings() -> Mapping[str, str]:
    return {
        "socket.request.max.elements": str(LIMIT),
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.num.partitions": "2",
        "log.cleaner.enable": "false",
    }


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, settings: Mapping[str, str]
) -> Iterator[RunningBroker]:
    with watching(), running_member(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def longest(broker: RunningBroker) -> Iterator[LongestCallback]:
    thresholds = gc.get_threshold()
    with broker.connect() as client:
        make_topic(client, TOPIC, 10)
        make_topic(client, "canary")
        for key_type in (0, 1):
            while client.request(FindCoordinatorRequest(GROUP, key_type), 2).error_code:
                time.sleep(0.01)
    garbage.configure()
    with loop_time(broker) as result:
        yield result
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.parametrize(
    "distinct",
    [pytest.param(True, id="distinct"), pytest.param(False, id="same", marks=pytest.mark.long)],
)
@pytest.mark.parametrize(("key", "version", "path"), CASES)
def test_a_giant_request_runs_in_slices(
    broker: RunningBroker,
    client: WireClient,
    longest: LongestCallback,
    key: ApiKey,
    version: int,
    path: Path,
    distinct: bool,
) -> None:
    request = giant_request(key, version, path, ELEMENTS, distinct=distinct)
    data = frame(request.message, request.version)
    del request
    broker.call(lambda _: longest.take())
    with broker.connect() as hostile:
        hostile.sock.settimeout(60)
        hostile.sock.sendall(data)
        try:
            hostile.receive_frame()
        except ConnectionError:
            assert key is ApiKey.PRODUCE, "with acks=0 an error closes the connection"
    produce_values(client, "canary", b"v")
    seconds, callback = broker.call(lambda _: longest.take())
    assert seconds < MOST_S, callback


@pytest.mark.parametrize("version", [12, 17])
def test_a_giant_fetch_of_a_follower_runs_in_slices(
    broker: RunningBroker, client: WireClient, longest: LongestCallback, version: int
) -> None:
    """A follower fetches all partitions of a leader at once. This one has none of them."""
    topic_id = client.request(MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 12).topics[0]
    topic = FetchTopic(
        TOPIC,
        topic_id.topic_id,
        [FetchPartition(number % 10, -1, 0, partition_max_bytes=1) for number in range(ELEMENTS)],
    )
    request = FetchRequest(max_wait_ms=1, topics=[topic])
    if version >= 15:
        request.replica_state.replica_id = 7
    else:
        request.replica_id = 7
    broker.call(lambda _: longest.take())
    with broker.connect() as follower:
        follower.sock.settimeout(60)
        response = follower.request(request, version)
    codes = {part.error_code for item in response.responses for part in item.partitions}
    assert codes == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    produce_values(client, "canary", b"v")
    seconds, callback = broker.call(lambda _: longest.take())
    assert seconds < MOST_S, callback


def test_a_giant_leader_and_isr_is_applied_in_slices(
    broker: RunningBroker, client: WireClient, longest: LongestCallback
) -> None:
    """Of the controller that the broker knows: it creates the replicas, then changes them.

    As many as a test can create. A listener makes each take as long as in a larger request.
    """

    def spend_time(led: Sequence[TopicPartition], _: object) -> None:
        end = time.thread_time() + len(led) * 0.00012
        while time.thread_time() < end:
            pass

    broker.call(lambda running: running.replicas.leadership_listeners.append(spend_time))
    controller_id, epoch = broker.call(
        lambda running: (running.image.controller_id, running.image.controller_epoch)
    )
    name, topic_id = "hosted", UUID(int=77)
    with broker.connect() as controller:
        controller.sock.settimeout(60)
        for leader_epoch in range(2):
            states = [
                LeaderAndIsrPartitionState(
                    "",
                    number,
                    epoch,
                    controller_id,
                    leader_epoch,
                    [controller_id],
                    leader_epoch,
                    [controller_id],
                    is_new=leader_epoch == 0,
                )
                for number in range(REPLICAS)
            ]
            topics = [LeaderAndIsrTopicState(name, topic_id, states)]
            request = LeaderAndIsrRequest(
                controller_id, controller_epoch=epoch, topic_states=topics
            )
            broker.call(lambda _: longest.take())
            response = controller.request(request, 5)
            assert response.error_code == 0
            codes = {
                part.error_code for topic in response.topics for part in topic.partition_errors
            }
            assert codes == {ErrorCode.NONE}
            produce_values(client, "canary", b"v")
            seconds, callback = broker.call(lambda _: longest.take())
            assert seconds < MOST_S, callback
            epochs = broker.call(
                lambda running: {
                    replica.partition.leader_epoch
                    for replica in running.replicas.by_topic[name].values()
                }
            )
            assert epochs == {leader_epoch}
    broker.call(lambda running: running.replicas.leadership_listeners.remove(spend_time))


# --- the limit


def test_a_request_with_too_many_elements_is_refused(broker: RunningBroker) -> None:
    """The connection stays open if the response has a place for the error."""
    indexes = list(range(LIMIT))
    topics = [ListPartitionReassignmentsTopics(TOPIC, indexes)]
    with broker.connect() as client:
        response = client.request(ListPartitionReassignmentsRequest(1000, topics), 0)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert "socket.request.max.elements=30000" in response.error_message
        topics = [ListPartitionReassignmentsTopics(TOPIC, indexes[:-1])]
        assert client.request(ListPartitionReassignmentsRequest(1000, topics), 0).error_code == 0


def test_too_many_filters_of_groups_are_refused(client: WireClient) -> None:
    """Each shard would compare every group with them."""
    response = client.request(ListGroupsRequest(["Stable"] * 60, ["classic"] * 41), 5)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert client.request(ListGroupsRequest(["Stable"] * 60, ["classic"] * 40), 5).error_code == 0


def test_without_a_place_for_the_error_the_connection_is_closed(broker: RunningBroker) -> None:
    with broker.connect() as client:
        client.send(DescribeGroupsRequest(["g"] * (LIMIT + 1)), 5)
        assert client.is_closed()


def test_invalid_bytes_after_many_elements_close_the_connection(broker: RunningBroker) -> None:
    """They are found on the thread that decodes the request."""
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(5000)]
    data = bytearray(frame(MetadataRequest(topics), 9))
    data[-10] = 0xFF
    with broker.connect() as client:
        client.sock.sendall(data)
        assert client.is_closed()


def test_responses_keep_their_order_around_a_giant_request(broker: RunningBroker) -> None:
    keys = [f"k{number}" for number in range(5000)]
    requests = [
        (FindCoordinatorRequest(coordinator_keys=["first"]), 4),
        (FindCoordinatorRequest(coordinator_keys=keys), 4),
        (FindCoordinatorRequest(coordinator_keys=["last"]), 4),
    ]
    with broker.connect() as client:
        numbers = [client.send(*request) for request in requests]
        for number in numbers:
            assert int.from_bytes(client.receive_frame()[:4]) == number


def test_responses_to_giant_requests_are_complete(client: WireClient) -> None:
    """The chunks of a request are merged in order."""
    keys = [f"k{number}" for number in range(5000)]
    coordinators = client.request(FindCoordinatorRequest(coordinator_keys=keys), 4).coordinators
    assert [coordinator.key for coordinator in coordinators] == keys
    groups = client.request(DescribeGroupsRequest(keys), 5).groups
    assert [group.group_id for group in groups] == keys
    topics = [MetadataRequestTopic(name=key) for key in keys]
    metadata = client.request(MetadataRequest(topics, allow_auto_topic_creation=False), 9)
    assert [topic.name for topic in metadata.topics] == keys


@pytest.mark.parametrize("version", [2, 7, 8, 10])
def test_all_offsets_of_a_group_are_fetched_in_chunks(
    client: WireClient, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    name = f"chunked-{version}"
    topics = [name, f"{name}-b"]
    for topic in topics:
        make_topic(client, topic, 5)
    commits = [
        OffsetCommitRequestTopic(
            topic, partitions=[OffsetCommitRequestPartition(index, index + 7) for index in range(5)]
        )
        for topic in topics
    ]
    committed = client.request(OffsetCommitRequest(name, topics=commits), 8)
    assert [len(topic.partitions) for topic in committed.topics] == [5, 5]
    request = OffsetFetchRequest(name, None)
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None)])
    whole = client.request(request, version)
    monkeypatch.setattr(request_chunks, "CHUNK_SIZE", 3)
    in_chunks = client.request(request, version)
    assert in_chunks == whole
    fetched = whole.groups[0].topics if version >= 8 else whole.topics
    assert [len(topic.partitions) for topic in fetched] == [5, 5]
