"""The cost of requests to the coordinators: commits, heartbeats, transactions."""

from pathlib import Path

from bench.broker_client import PRODUCE_VERSION, Client, frame
from bench.broker_measure import Cost, cost, in_turns
from bench.broker_process import Server, start_broker
from bench.report import Row
from penstock.protocol.fields import Message
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.build import build_batch
from penstock.records.record import Record

ROUNDS = 8
REQUESTS = 2_000
DEPTH = 50
TRANSACTIONS = 200
PARTITIONS = 10
_TOPIC = "read"
_MEMBER = "a-member"


def requests(directory: Path) -> list[Row]:
    with start_broker(directory / "requests") as broker, Client(broker.address) as client:
        topic_id = client.create_topic(_TOPIC, PARTITIONS)
        for key_type, name in ((0, "group"), (1, "transactions")):
            find = FindCoordinatorRequest(name, key_type)
            if client.send_request(find, 3, FindCoordinatorResponse).error_code:
                raise RuntimeError(f"no coordinator of {name}")
        joined = join(client)
        if joined.error_code:
            raise RuntimeError(f"joining: {joined.error_message}")
        partitions = [OffsetCommitRequestPartition(n, 7) for n in range(PARTITIONS)]
        topics = [OffsetCommitRequestTopic(topic_id=topic_id, partitions=partitions)]
        commit = OffsetCommitRequest("group", joined.member_epoch, _MEMBER, topics=topics)
        beat = ConsumerGroupHeartbeatRequest("group", _MEMBER, joined.member_epoch)
        producer = Transactions(client)
        commits, beats, transactions = in_turns(
            ROUNDS,
            Load(broker, client, commit, 10, OffsetCommitResponse),
            Load(broker, client, beat, 1, ConsumerGroupHeartbeatResponse),
            lambda: cost(broker, producer.run),
        )
    return [
        *row(f"OffsetCommit of {PARTITIONS} partitions, pipelined", commits, REQUESTS),
        *row("ConsumerGroupHeartbeat, pipelined", beats, REQUESTS),
        *row("transactions of one record, one after the other", transactions, TRANSACTIONS),
    ]


def join(client: Client) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        "group",
        _MEMBER,
        0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[_TOPIC],
        topic_partitions=[],
    )
    return client.send_request(request, 1, ConsumerGroupHeartbeatResponse)


class Load:
    """Repeats a request; its first response is checked, the others must be as long."""

    def __init__(
        self,
        broker: Server,
        client: Client,
        message: Message,
        version: int,
        response: type[Message],
    ) -> None:
        self._broker = broker
        self._client = client
        self._request = frame(message, version)
        decoded = client.send_request(message, version, response)
        if getattr(decoded, "error_code", 0):
            raise RuntimeError(f"{decoded}")
        client.sock.sendall(self._request)
        self._size = len(client.read_response()) + 4

    def __call__(self) -> Cost:
        return cost(
            self._broker,
            lambda: self._client.pipelined([self._request], [self._size], REQUESTS, DEPTH),
        )


class Transactions:
    """A producer whose transactions have one record: a Produce, then EndTxn."""

    def __init__(self, client: Client) -> None:
        self._client = client
        client.create_topic("written")
        init = InitProducerIdRequest("transactions", 60_000)
        decoded = client.send_request(init, 5, InitProducerIdResponse)
        if decoded.error_code:
            raise RuntimeError(f"InitProducerId: error {decoded.error_code}")
        self._producer = decoded.producer_id, decoded.producer_epoch

    def run(self) -> None:
        for _ in range(TRANSACTIONS):
            self._produce()
            self._commit()

    def _produce(self) -> None:
        producer_id, epoch = self._producer
        batch = build_batch(
            [Record(0, 1_700_000_000_000, None, bytes(100))],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = TopicProduceData(
            "written", partition_data=[PartitionProduceData(0, memoryview(bytes(batch)))]
        )
        request = ProduceRequest("transactions", -1, 30_000, [data])
        response = self._client.send_request(request, PRODUCE_VERSION, ProduceResponse)
        error = response.responses[0].partition_responses[0].error_code
        if error:
            raise RuntimeError(f"Produce: error {error}")

    def _commit(self) -> None:
        request = EndTxnRequest("transactions", *self._producer, True)
        response = self._client.send_request(request, 5, EndTxnResponse)
        if response.error_code:
            raise RuntimeError(f"EndTxn: error {response.error_code}")
        self._producer = response.producer_id, response.producer_epoch


def row(name: str, measured: Cost, count: int) -> list[Row]:
    return [
        Row(name, count / measured.seconds, "/s"),
        Row("  broker CPU for each", measured.cpu / count * 1e6, "us"),
    ]
