"""The controller's host: decisions are committed, retried on conflicts, and published once."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from penstock.broker.metadata.controller_host import MAX_ATTEMPTS, ControllerHost
from penstock.broker.pacer import Pacer
from penstock.broker.workers import Workers
from penstock.cluster.store import CommittedChanges, MetadataStore, Scope, StoreConflictError
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Change, ConfigRecord, Put, Record
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode, KafkaError
from penstock.core.ids import TopicPartition
from tests.support.cluster.memory_store import MemoryStore, MemoryStoreServer
from tests.support.cluster.metadata_changes import config, partition, topic

T = TypeVar("T")


class Listening(ControllerHost):
    """A host that keeps the lists that it published."""

    def __init__(self, store: MetadataStore, workers: Workers) -> None:
        super().__init__(ClusterImage(), store, workers, Pacer())
        self.published: list[list[Change]] = []
        self.listeners.append(lambda changes: self.published.append(list(changes)))


def run(
    scenario: Callable[[Listening, MemoryStore], Coroutine[Any, Any, T]],
    open_store: Callable[[MemoryStoreServer], MetadataStore] = MemoryStoreServer.open,
    stored: Sequence[Record] = (),
) -> T:
    """Runs a scenario with a host, and with the session of another broker on the same store."""

    async def inside() -> T:
        server = MemoryStoreServer()
        another = server.open()
        if stored:
            another.commit([Put(record) for record in stored])
        workers = Workers()
        try:
            host = Listening(open_store(server), workers)
            host.load()
            return await scenario(host, another)
        finally:
            workers.close()

    return asyncio.run(inside())


def put(*records: Record) -> Callable[[ClusterImage], ControllerResult[str]]:
    return lambda _image: ControllerResult([Put(record) for record in records], "done")


def count(image: ClusterImage) -> ControllerResult[int]:
    """A decision that depends on the image: raises the counter that it contains."""
    number = int(image.config("users", "counter").get("n", "0")) + 1
    return ControllerResult([Put(counter(number))], number)


def counter(number: int) -> ConfigRecord:
    return config(("users", "counter"), n=str(number))


async def published(host: Listening, number: int) -> None:
    """Waits until the host has published that many lists."""
    async with asyncio.timeout(5):
        while len(host.published) < number:
            await asyncio.sleep(0.001)


def test_loading_fills_the_image_without_notifications() -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        assert list(host.image.topics) == ["t"]
        assert host.published == []

    run(scenario, stored=[topic("t")])


def test_a_decision_is_committed_and_published_once() -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        assert await host.run(put(topic("t"), partition("t"))) == "done"
        assert host.published == [[Put(topic("t")), Put(partition("t"))]]
        assert host.image.topics == {"t": topic("t")}
        assert another.load().records == [topic("t"), partition("t")]
        await asyncio.sleep(0.01)
        assert len(host.published) == 1

    run(scenario)


def test_a_decision_without_changes_commits_nothing() -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        before = another.load().version
        assert await host.run(put()) == "done"
        assert another.load().version == before

    run(scenario)


def test_commits_of_another_broker_are_published_once() -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        another.commit([Put(topic("t"))])
        another.commit([Put(partition("t"))])
        await published(host, 2)
        await asyncio.sleep(0.01)
        assert host.published == [[Put(topic("t"))], [Put(partition("t"))]]
        assert TopicPartition("t", 0) in host.image.partitions

    run(scenario)


def test_own_commits_and_those_of_others_are_published_in_order() -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        expected: list[list[Change]] = []
        for number in range(20):
            record = config(("users", str(number)), a="1")
            if number % 3:
                another.commit([Put(record)])
            else:
                await host.run(put(record))
            expected.append([Put(record)])
        await published(host, 20)
        assert host.published == expected

    run(scenario)


def test_a_decision_includes_changes_delivered_before_it() -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        another.commit([Put(counter(5))])
        assert await host.run(count) == 6
        assert host.published == [[Put(counter(5))], [Put(counter(6))]]

    run(scenario)


def test_preparations_end_before_changes_are_published() -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        prepared: list[Sequence[Change]] = []

        async def prepare(changes: Sequence[Change]) -> None:
            assert "t" not in host.image.topics
            await asyncio.sleep(0.01)
            assert host.published == []
            prepared.append(changes)

        host.preparations.append(prepare)
        another.commit([Put(topic("t"))])
        await published(host, 1)
        assert prepared == host.published == [[Put(topic("t"))]]

    run(scenario)


def test_changes_are_published_although_a_preparation_fails() -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        async def prepare(changes: Sequence[Change]) -> None:
            raise ValueError("no")

        host.preparations.append(prepare)
        assert await host.run(put(topic("t"))) == "done"
        assert host.published == [[Put(topic("t"))]]

    run(scenario)


def test_the_changes_of_a_cancelled_caller_are_published() -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        started = asyncio.Event()

        async def prepare(changes: Sequence[Change]) -> None:
            started.set()
            await asyncio.sleep(0.01)

        host.preparations.append(prepare)
        caller = asyncio.create_task(host.run(put(topic("t"))))
        await started.wait()
        caller.cancel()
        await published(host, 1)
        assert host.published == [[Put(topic("t"))]]
        assert "t" in host.image.topics

    run(scenario)


class SilentSession(MemoryStore):
    """A session whose deliveries are late: the host learns of other changes from a conflict."""

    is_committing = False

    def subscribe(
        self, listener: Callable[[CommittedChanges], None], scope: Scope = Scope.ALL
    ) -> None:
        def deliver(committed: CommittedChanges) -> None:
            if self.is_committing:
                listener(committed)

        super().subscribe(deliver, scope)

    def commit(
        self, changes: Sequence[Change], *, based_on: int | None = None, fenced: bool = False
    ) -> int:
        self.is_committing = True
        try:
            return super().commit(changes, based_on=based_on, fenced=fenced)
        finally:
            self.is_committing = False


def silent_session(server: MemoryStoreServer) -> MetadataStore:
    return server.open(SilentSession)


def test_after_a_conflict_the_decision_is_run_again_on_the_new_image() -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        await host.run(count)
        another.commit([Put(counter(7)), Put(topic("t"))])
        assert host.image.config("users", "counter") == {"n": "1"}
        assert await host.run(count) == 8
        assert host.published[1:] == [[Put(counter(7)), Put(topic("t"))], [Put(counter(8))]]
        assert counter(8) in another.load().records

    run(scenario, silent_session)


def test_a_conflict_at_start_is_resolved_by_deciding_again() -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        assert host.run_at_start(count) == 1
        another.commit([Put(counter(7))])
        assert host.run_at_start(count) == 8
        assert host.published == [[Put(counter(1))], [Put(counter(7))], [Put(counter(8))]]

    run(scenario, silent_session)


class ContendedSession(MemoryStore):
    """A session whose every commit comes too late."""

    attempts = 0

    def commit(
        self, changes: Sequence[Change], *, based_on: int | None = None, fenced: bool = False
    ) -> int:
        self.attempts += 1
        raise StoreConflictError("/config/users/counter", "has changed")


@pytest.mark.parametrize("at_start", [False, True])
def test_a_decision_that_always_conflicts_ends_in_an_error_that_clients_retry(
    at_start: bool,
) -> None:
    sessions: list[ContendedSession] = []

    def contended_session(server: MemoryStoreServer) -> MetadataStore:
        session = server.open(ContendedSession)
        assert isinstance(session, ContendedSession)
        sessions.append(session)
        return session

    async def scenario(host: Listening, another: MemoryStore) -> None:
        with pytest.raises(KafkaError, match="/config/users/counter") as caught:
            host.run_at_start(count) if at_start else await host.run(count)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert sessions[0].attempts == MAX_ATTEMPTS
        assert host.published == []
        assert host.image.configs == {}

    run(scenario, contended_session)


def test_after_a_failed_decision_the_next_one_runs() -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        def fail(image: ClusterImage) -> ControllerResult[None]:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

        with pytest.raises(KafkaError, match="no"):
            await host.run(fail)
        assert await host.run(count) == 1

    run(scenario)


def test_the_failure_of_a_listener_keeps_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(host: Listening, another: MemoryStore) -> None:
        def fail(changes: Sequence[Change]) -> None:
            raise ValueError("broken")

        host.listeners.insert(0, fail)
        assert await host.run(put(topic("orders"))) == "done"
        assert len(host.published) == 1

    run(scenario)
    assert "a listener failed" in caplog.text


def test_many_changes_are_published_topic_by_topic() -> None:
    """Requests are served in between; each topic appears with all its partitions (X5)."""
    changes: list[Change] = [
        Put(record)
        for number in range(100)
        for record in (
            topic(f"t{number}"),
            partition(f"t{number}", 0),
            partition(f"t{number}", 1),
            partition(f"t{number}", 2),
        )
    ]

    async def scenario(host: Listening, another: MemoryStore) -> list[list[Change]]:
        await host.run(lambda image: ControllerResult(changes, None))
        return host.published

    published = run(scenario)
    assert [change for part in published for change in part] == changes
    assert len(published) > 1
    assert max(map(len, published)) < 110
    for part in published:
        assert len(part) % 4 == 0
