"""Random requests of clients, concurrently, with their outcomes in the model."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from penstock.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.records.build import build_batch
from penstock.records.record import Record
from tests.support.faults.fault_model import (
    Model,
    Outcome,
    PartitionModel,
    TopicKind,
    Transaction,
    check_fetched,
)
from tests.support.faults.simulated_broker import LOG_DIRS, SimulatedBroker
from tests.support.faults.simulated_clients import TransactionalProducer, commit_offset
from tests.support.protocol.requests import NOW

CONFIGS = {
    TopicKind.FLUSHED: {"flush.messages": "1"},
    TopicKind.PLAIN: {"flush.messages": "1000000"},
    TopicKind.COMPACTED: {
        "flush.messages": "1",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
    },
    TopicKind.RETAINED: {"flush.messages": "1", "retention.bytes": "4000"},
}
TOPICS = {
    "flushed": (TopicKind.FLUSHED, 2),
    "plain": (TopicKind.PLAIN, 1),
    "compacted": (TopicKind.COMPACTED, 1),
    "retained": (TopicKind.RETAINED, 1),
}
_KEYS = 4
_AFTER_APPEND = "could not be flushed"
"""What the message of an error says if the records were appended."""


async def create_topic(
    broker: SimulatedBroker, model: Model, name: str, kind: TopicKind, partitions: int
) -> None:
    """Creates a topic that the model does not have."""
    model.unclear_topics[name] = kind
    try:
        code = await broker.create_topic(name, partitions, CONFIGS[kind])
    except KafkaError:
        return
    if code == ErrorCode.NONE:
        del model.unclear_topics[name]
        for index in range(partitions):
            model.partitions[TopicPartition(name, index)] = PartitionModel(kind)


class Workload:
    """The clients of one run of a broker."""

    def __init__(self, broker: SimulatedBroker, model: Model, rng: Random) -> None:
        self._broker = broker
        self._model = model
        self._rng = rng
        self._busy_topics: set[str] = set()
        """Topics that are being created or deleted."""

    async def run(self, clients: int, requests: int) -> None:
        """Runs several clients at the same time, each with so many requests."""
        await asyncio.gather(*(self._client(number, requests) for number in range(clients)))

    async def _client(self, number: int, requests: int) -> None:
        actions: list[tuple[int, Callable[[int], Awaitable[None]]]] = [
            (6, self._produce),
            (4, self._produce_concurrently),
            (4, self._produce_idempotently),
            (4, self._run_transaction),
            (3, self._commit_offset),
            (2, self._create_or_delete),
            (1, self._delete_records),
            (2, self._move),
            (4, self._wait),
            (4, self._fetch),
            (1, self._break_connection),
        ]
        for _ in range(requests):
            (action,) = self._rng.choices(
                [action for _, action in actions], [weight for weight, _ in actions]
            )
            try:
                await action(number)
            except KafkaError as error:
                # The connection broke, so that the outcome is unknown.
                if error.code is not ErrorCode.NETWORK_EXCEPTION:
                    raise

    async def _break_connection(self, client: int) -> None:
        self._broker.break_connection()

    async def _wait(self, client: int) -> None:
        await asyncio.sleep(self._rng.choice((0.01, 0.3, 3.0)))

    async def _fetch(self, client: int) -> None:
        key = self._choose()
        if key is None:
            return
        model = self._model.partitions[key]
        start = self._rng.randrange(max(model.offsets.values(), default=0) + 1)
        max_wait_ms = self._rng.choice((0, 0, 700))
        response = await self._broker.fetch(key, start, max_wait_ms=max_wait_ms)
        if response is not None and self._model.partitions.get(key) is model:
            check_fetched(key, model, start, response.error_code, bytes(response.records or b""))

    def _choose(self) -> TopicPartition | None:
        keys = [key for key in self._model.partitions if key.topic not in self._busy_topics]
        return self._rng.choice(keys) if keys else None

    # --- records

    def _record(self, model: PartitionModel, sequence: int = 0) -> Record:
        token = self._model.new_token()
        key = None
        if model.kind is TopicKind.COMPACTED:
            key = model.keys[token] = b"key %d" % self._rng.randrange(_KEYS)
        model.outcomes[token] = Outcome.UNKNOWN
        return Record(sequence, NOW, key, token + b"." * self._rng.choice((0, 50, 400)))

    async def _produce(self, client: int) -> None:
        key = self._choose()
        if key is not None:
            await self._produce_to(key)

    async def _produce_concurrently(self, client: int) -> None:
        """Several producers to one partition: they share flushes."""
        key = self._choose()
        if key is not None:
            await asyncio.gather(*(self._produce_to(key) for _ in range(4)))

    async def _produce_to(self, key: TopicPartition) -> None:
        model = self._model.partitions.get(key)
        if model is None:
            return
        records = [self._record(model, n) for n in range(self._rng.choice((1, 1, 3)))]
        await self._send(key, model, records, build_batch(records))

    async def _send(
        self,
        key: TopicPartition,
        model: PartitionModel,
        records: list[Record],
        batch: bytearray,
        *,
        is_first: bool = True,
    ) -> bool:
        tokens = [(record.value or b"").rstrip(b".") for record in records]
        response = await self._broker.produce(key.topic, batch, key.partition)
        if self._model.partitions.get(key) is not model:
            return False
        if response.error_code == ErrorCode.NONE:
            for n, token in enumerate(tokens):
                model.outcomes[token] = Outcome.ACKNOWLEDGED
                model.offsets[token] = response.base_offset + n
            return True
        is_refused = response.error_code != ErrorCode.REQUEST_TIMED_OUT and _AFTER_APPEND not in (
            response.error_message or ""
        )
        if is_first and is_refused:
            for token in tokens:
                if model.outcomes[token] is Outcome.UNKNOWN:
                    model.outcomes[token] = Outcome.REFUSED
        return False

    async def _produce_idempotently(self, client: int) -> None:
        key = self._choose()
        if key is None:
            return
        model = self._model.partitions[key]
        try:
            response = await self._broker.request(InitProducerIdRequest(None, 0), 4)
        except KafkaError:
            return
        if response.error_code:
            return
        for sequence in range(2):
            record = self._record(model)
            batch = build_batch(
                [record],
                producer_id=response.producer_id,
                producer_epoch=response.producer_epoch,
                base_sequence=sequence,
            )
            token = (record.value or b"").rstrip(b".")
            # Sent twice, as after a lost response: it must be in the log once.
            for _ in range(2):
                try:
                    await self._send(key, model, [record], batch)
                except KafkaError:
                    # The first attempt may still be in progress.
                    await self._send(key, model, [record], batch, is_first=False)
                if model.outcomes[token] is not Outcome.ACKNOWLEDGED:
                    return

    # --- transactions and offsets

    async def _run_transaction(self, client: int) -> None:
        number = len(self._model.transactions)
        transaction = Transaction(f"transaction {client} {number}", f"group {number}")
        producer = TransactionalProducer(self._broker, transaction.transactional_id)
        if await producer.init():
            return
        self._model.transactions.append(transaction)
        failed = False
        for _ in range(2):
            key = self._choose()
            if key is None or self._model.partitions[key].kind is not TopicKind.FLUSHED:
                continue
            token = self._model.new_token()
            transaction.tokens[token] = (key, self._model.partitions[key])
            response = await producer.produce(key, token)
            failed = failed or bool(response.error_code)
        key = self._choose()
        if key is not None and not failed and self._rng.random() < 0.5:
            failed = bool(await producer.commit_offset(transaction.group, key, number))
            transaction.has_offset = True
        commit = not failed and self._rng.random() < 0.7
        transaction.is_commit_requested = commit
        code = await producer.end(commit=commit)
        transaction.is_committed = commit and code == ErrorCode.NONE

    async def _commit_offset(self, client: int) -> None:
        key = self._choose()
        if key is None:
            return
        group_key = (f"readers {client}", key)
        offset = self._model.last_token
        self._model.last_token += 1
        self._model.unclear_offsets.setdefault(group_key, set()).add(offset)
        model = self._model.partitions[key]
        code = await commit_offset(self._broker, *group_key, offset)
        if code == ErrorCode.NONE and self._model.partitions.get(key) is model:
            self._model.offsets[group_key] = offset
            self._model.unclear_offsets.pop(group_key)

    # --- topics

    async def _create_or_delete(self, client: int) -> None:
        name = f"temporary-{client}"
        if name in self._busy_topics or name in self._model.unclear_topics:
            return
        self._busy_topics.add(name)
        if TopicPartition(name, 0) not in self._model.partitions:
            await create_topic(self._broker, self._model, name, TopicKind.FLUSHED, 2)
        else:
            self._model.unclear_topics[name] = TopicKind.FLUSHED
            self._model.begin_deletion(name)
            try:
                body = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=5000)
                (result,) = (await self._broker.request(body, 6)).responses
                if result.error_code == ErrorCode.NONE:
                    del self._model.unclear_topics[name]
                    self._model.end_deletion(name)
            except KafkaError:
                pass
        self._busy_topics.discard(name)

    async def _delete_records(self, client: int) -> None:
        key = self._choose()
        if key is None or self._model.partitions[key].kind is TopicKind.COMPACTED:
            return
        model = self._model.partitions[key]
        offset = max(model.offsets.values(), default=0) // 2
        model.deleted_to = max(model.deleted_to, offset)
        part = DeleteRecordsPartition(key.partition, offset)
        body = DeleteRecordsRequest([DeleteRecordsTopic(key.topic, [part])], 5000)
        await self._broker.request(body, 2)

    async def _move(self, client: int) -> None:
        key = self._choose()
        if key is None:
            return
        topic = AlterReplicaLogDirTopic(key.topic, [key.partition])
        body = AlterReplicaLogDirsRequest([AlterReplicaLogDir(self._rng.choice(LOG_DIRS), [topic])])
        await self._broker.request(body, 2)
