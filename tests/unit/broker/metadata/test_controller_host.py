"""The controller's host: elections, decisions, and what the store delivers."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from penstock.broker.metadata.controller_host import MAX_ATTEMPTS
from penstock.broker.workers import Workers
from penstock.cluster.store import (
    CommittedChanges,
    MetadataStore,
    Scope,
    SessionState,
    StoreConflictError,
)
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    Assignment,
    BrokerKey,
    Change,
    ClusterKey,
    ConfigRecord,
    ControllerEpochRecord,
    ControllerRecord,
    Delete,
    PartitionRecord,
    Put,
    Record,
    TopicDeletionRecord,
    TopicRecord,
)
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode, KafkaError, KafkaStorageError
from penstock.core.ids import TopicPartition
from tests.support.broker.controller_hosts import HostOfTests
from tests.support.cluster.memory_store import MemoryStore, MemoryStoreServer
from tests.support.cluster.metadata_changes import broker, config, partition, topic

T = TypeVar("T")


class Scenario:
    """A host, and the session of another broker on the same store."""

    def __init__(self, server: MemoryStoreServer, store: MetadataStore, workers: Workers) -> None:
        self.server = server
        self.store = store
        self.another = server.open()
        self.workers = workers
        self.host = HostOfTests(store, workers)

    async def until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not is_true():
                await asyncio.sleep(0.001)

    async def published(self, number: int) -> None:
        """Waits until the host has published that many lists."""
        await self.until(lambda: len(self.host.published) >= number)


def run(
    script: Callable[[Scenario], Coroutine[Any, Any, T]],
    open_store: Callable[[MemoryStoreServer], MetadataStore] = MemoryStoreServer.open,
    *,
    is_controller: bool = True,
    stored: Sequence[Record] = (),
) -> T:
    """Runs a script with a host that is the controller, unless it says otherwise."""

    async def inside() -> T:
        server = MemoryStoreServer()
        workers = Workers()
        try:
            scenario = Scenario(server, open_store(server), workers)
            if stored:
                scenario.another.commit([Put(record) for record in stored])
            scenario.host.load()
            if is_controller:
                await scenario.host.become_controller()
            result = await script(scenario)
            await scenario.host.close()
            return result
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


def replicated(name: str, *replicas: int) -> tuple[TopicRecord, PartitionRecord]:
    """A topic with one partition, whose first replica leads."""
    return (
        TopicRecord(name, topic(name).topic_id, {0: Assignment(replicas)}),
        PartitionRecord(name, 0, replicas[0], 0, replicas, 1, 0),
    )


# --- settings


def test_loading_fills_the_image_with_settings_only_and_notifies_nobody() -> None:
    """Topics come from the controller."""

    async def script(scenario: Scenario) -> None:
        image = scenario.host.image
        assert image.config("users", "counter") == {"n": "3"}
        assert image.topics == {}

    run(script, is_controller=False, stored=[topic("t"), counter(3)])


def test_settings_of_another_broker_are_published_once() -> None:
    async def script(scenario: Scenario) -> None:
        host = scenario.host
        scenario.another.commit([Put(counter(1))])
        scenario.another.commit([Put(counter(2))])
        await scenario.published(2)
        await asyncio.sleep(0.01)
        assert host.published == [[Put(counter(1))], [Put(counter(2))]]

    run(script)


def test_every_broker_may_write_settings() -> None:
    async def script(scenario: Scenario) -> None:
        assert await scenario.host.write(count) == 1
        assert scenario.host.image.config("users", "counter") == {"n": "1"}
        assert counter(1) in scenario.another.load().records

    run(script, is_controller=False)


def test_own_settings_and_those_of_others_are_published_in_order() -> None:
    async def script(scenario: Scenario) -> None:
        expected: list[list[Change]] = []
        for number in range(20):
            record = config(("users", str(number)), a="1")
            if number % 3:
                scenario.another.commit([Put(record)])
            else:
                await scenario.host.write(put(record))
            expected.append([Put(record)])
        await scenario.published(20)
        assert scenario.host.published == expected

    run(script)


# --- decisions of the controller


def test_a_decision_is_committed_and_published_once() -> None:
    async def script(scenario: Scenario) -> None:
        host = scenario.host
        topic_record, state = replicated("t", 0)
        assert await host.run(put(topic_record, state)) == "done"
        assert host.published == [[Put(topic_record), Put(state)]]
        assert host.image.topics == {"t": topic_record}
        stored = scenario.another.load().records
        assert topic_record in stored
        assert state in stored
        await asyncio.sleep(0.01)
        assert len(host.published) == 1

    run(script)


def test_a_decision_without_changes_commits_nothing() -> None:
    async def script(scenario: Scenario) -> None:
        before = scenario.another.load().version
        assert await scenario.host.run(put()) == "done"
        assert scenario.another.load().version == before

    run(script)


def test_a_broker_that_is_not_the_controller_refuses_decisions() -> None:
    async def script(scenario: Scenario) -> None:
        scenario.another.commit([Put(ControllerEpochRecord(4)), Put(ControllerRecord(7, 1))])
        await scenario.host.elect()
        with pytest.raises(KafkaError, match="it is broker 7") as caught:
            await scenario.host.run(count)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER

    run(script, is_controller=False)


def test_a_decision_includes_changes_delivered_before_it() -> None:
    async def script(scenario: Scenario) -> None:
        scenario.another.commit([Put(counter(5))])
        assert await scenario.host.run(count) == 6
        assert scenario.host.published == [[Put(counter(5))], [Put(counter(6))]]

    run(script)


def test_the_changes_of_a_cancelled_caller_are_published() -> None:
    async def script(scenario: Scenario) -> None:
        host = scenario.host
        started = asyncio.Event()

        async def require(changes: Sequence[Change]) -> Callable[[], Coroutine[Any, Any, None]]:
            started.set()
            await asyncio.sleep(0.01)
            return undo

        async def undo() -> None: ...

        host.requirements.append(require)
        caller = asyncio.create_task(host.run(put(counter(1))))
        await started.wait()
        caller.cancel()
        await scenario.published(1)
        assert host.published == [[Put(counter(1))]]

    run(script)


def test_what_a_decision_requires_is_undone_if_it_is_not_committed() -> None:
    async def script(scenario: Scenario) -> list[str]:
        calls: list[str] = []

        async def require(changes: Sequence[Change]) -> Callable[[], Coroutine[Any, Any, None]]:
            calls.append("required")

            async def undo() -> None:
                calls.append("undone")

            return undo

        scenario.host.requirements.append(require)
        with pytest.raises(KafkaError):
            await scenario.host.run(put(partition("t", epoch=3)))
        return calls

    assert run(script)[:2] == ["required", "undone"]


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


@pytest.mark.parametrize("is_controller", [True, False])
def test_after_a_conflict_the_decision_is_run_again_on_the_new_image(is_controller: bool) -> None:
    async def script(scenario: Scenario) -> None:
        host = scenario.host
        decide = host.run if is_controller else host.write
        await decide(count)
        scenario.another.commit([Put(counter(7))])
        assert host.image.config("users", "counter") == {"n": "1"}
        assert await decide(count) == 8
        assert host.image.config("users", "counter") == {"n": "8"}
        assert counter(8) in scenario.another.load().records

    run(script, lambda server: server.open(SilentSession), is_controller=is_controller)


class ContendedSession(MemoryStore):
    """A session whose commits of settings come too late."""

    attempts = 0

    def commit(
        self, changes: Sequence[Change], *, based_on: int | None = None, fenced: bool = False
    ) -> int:
        if any(isinstance(change.key, type(counter(0).key)) for change in changes):
            self.attempts += 1
            raise StoreConflictError("/config/users/counter", "has changed")
        return super().commit(changes, based_on=based_on, fenced=fenced)


@pytest.mark.parametrize("is_controller", [True, False])
def test_a_decision_that_always_conflicts_ends_in_an_error_that_clients_retry(
    is_controller: bool,
) -> None:
    async def script(scenario: Scenario) -> None:
        host = scenario.host
        with pytest.raises(KafkaError, match="/config/users/counter") as caught:
            await (host.run if is_controller else host.write)(count)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert isinstance(scenario.store, ContendedSession)
        assert scenario.store.attempts == MAX_ATTEMPTS
        assert host.published == []
        assert host.image.configs == {}

    run(script, lambda server: server.open(ContendedSession), is_controller=is_controller)


def test_after_a_failed_decision_the_next_one_runs() -> None:
    async def script(scenario: Scenario) -> None:
        def fail(image: ClusterImage) -> ControllerResult[None]:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "no")

        with pytest.raises(KafkaError, match="no"):
            await scenario.host.run(fail)
        assert await scenario.host.run(count) == 1

    run(script)


def test_the_failure_of_a_listener_keeps_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def script(scenario: Scenario) -> None:
        def fail(changes: Sequence[Change]) -> None:
            raise ValueError("broken")

        scenario.host.metadata.listeners.insert(0, fail)
        assert await scenario.host.run(put(*replicated("orders", 0))) == "done"
        assert len(scenario.host.published) == 1

    run(script)
    assert "a listener failed" in caplog.text


def test_many_changes_are_published_topic_by_topic() -> None:
    """Requests are served in between; each topic appears with all its partitions (X5)."""
    changes: list[Change] = []
    for number in range(100):
        name = f"t{number}"
        assignments = {index: Assignment((0,)) for index in range(3)}
        topic_id = topic(name, number=number + 1).topic_id
        changes.append(Put(TopicRecord(name, topic_id, assignments)))
        changes += [Put(PartitionRecord(name, index, 0, 0, (0,), 1, 0)) for index in range(3)]

    async def script(scenario: Scenario) -> list[list[Change]]:
        await scenario.host.run(lambda image: ControllerResult(changes, None))
        return scenario.host.published

    published = run(script)
    assert [change for part in published for change in part] == changes
    assert len(published) > 1
    assert max(map(len, published)) < 110
    for part in published:
        assert len(part) % 4 == 0


# --- elections and failures (R6, R7)


def test_the_broker_becomes_controller_when_the_last_one_is_gone() -> None:
    async def script(scenario: Scenario) -> None:
        host = scenario.host
        scenario.another.commit([Put(ControllerEpochRecord(4)), Put(ControllerRecord(7, 1))])
        await host.write(put(broker(0)))
        await host.elect()
        assert not host.is_active
        scenario.another.close()
        await scenario.until(lambda: host.is_active)
        assert await host.run(count) == 1
        assert host.active is not None
        assert host.active.image.controller_epoch == 5

    run(script, is_controller=False)


@pytest.mark.parametrize("has_others", [True, False])
def test_a_controller_that_resigns_lets_another_broker_be_elected(has_others: bool) -> None:
    """The session lasts until the logs are closed. Nobody waits for a single node."""

    async def script(scenario: Scenario) -> None:
        if has_others:
            scenario.another.commit([Put(broker(8))])
            controller = scenario.host.active
            assert controller is not None
            await scenario.until(lambda: 8 in controller.image.brokers)
        await scenario.host.resign()
        assert not scenario.host.is_active
        keys = {record.key for record in scenario.another.load().records}
        assert (ClusterKey("controller") in keys) is not has_others
        assert ClusterKey("controller_epoch") in keys

    run(script)


def test_a_claim_that_outlives_the_session_is_made_again() -> None:
    """The commit began in a session that expired, and was completed in the next one."""

    async def script(scenario: Scenario) -> None:
        first = scenario.host.active
        scenario.host._deliver_session_state(SessionState.EXPIRED)
        scenario.host._deliver_session_state(SessionState.CONNECTED)
        await scenario.until(lambda: scenario.host.active not in (None, first))
        assert ControllerEpochRecord(2) in scenario.another.load().records

    run(script)


def test_brokers_get_full_updates_although_another_one_has_left_again() -> None:
    async def script(scenario: Scenario) -> None:
        controller = scenario.host.active
        assert controller is not None
        sent = scenario.host.context.channels.sent
        for broker_id in (7, 8):
            await controller.apply(
                CommittedChanges(controller.version + 1, [Put(broker(broker_id))])
            )
        facts = controller.decide(controller.image).response
        assert facts.refreshed == {7, 8}
        deletions = [Delete(BrokerKey(7))]
        await controller.apply(CommittedChanges(controller.version + 1, deletions))
        sent.clear()
        await controller.finish(facts)
        assert [(broker_id, update.is_full) for broker_id, update in sent] == [(8, True)]

    run(script)


def test_a_controller_that_was_replaced_commits_nothing_and_resigns() -> None:
    """R6: it may not have noticed the end of its session."""

    async def script(scenario: Scenario) -> None:
        host = scenario.host
        scenario.another.commit([Put(ControllerEpochRecord(9))])
        before = scenario.another.load()
        with pytest.raises(KafkaError) as caught:
            await host.run(count)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert scenario.another.load().records == before.records
        assert host.context.channels.is_closed

    run(script, lambda server: server.open(SilentSession))


def test_a_broker_whose_session_expired_registers_and_is_elected_again() -> None:
    async def script(scenario: Scenario) -> None:
        host = scenario.host
        registrations: list[str] = []

        async def register() -> None:
            await host.write(put(broker(0)))
            registrations.append("registered")

        host.on_new_session = register
        assert isinstance(scenario.store, MemoryStore)
        scenario.server.expire(scenario.store)
        await scenario.until(lambda: host.is_active and bool(registrations))
        assert await host.run(count) == 1
        assert host.active is not None
        assert host.active.image.controller_epoch == 2
        assert broker(0).key in {record.key for record in scenario.another.load().records}

    run(script)


class FailingSession(MemoryStore):
    """A session that loses the store while it commits the states of partitions."""

    is_failing = True

    def commit(
        self, changes: Sequence[Change], *, based_on: int | None = None, fenced: bool = False
    ) -> int:
        if self.is_failing and any(isinstance(change.key, TopicPartition) for change in changes):
            raise KafkaStorageError("the store cannot be reached")
        return super().commit(changes, based_on=based_on, fenced=fenced)


def test_a_new_controller_informs_nobody_before_its_first_decision_is_committed() -> None:
    """R4: a broker that has lost records would lead in the epoch from before, and others truncate.

    Nor does it decide anything else: it could elect that broker.
    """
    lossy = replace(broker(1), is_unclean=True)

    async def script(scenario: Scenario) -> None:
        host, store = scenario.host, scenario.store
        assert isinstance(store, FailingSession)
        third = scenario.server.open()
        third.commit([Put(broker(2))])
        await host.become_controller()
        sent = host.context.channels.sent
        assert sent == []
        with pytest.raises(KafkaStorageError, match="has lost records"):
            await host.run(put(counter(1)))
        store.is_failing = False
        await scenario.until(lambda: bool(sent))
        assert {(broker_id, update.is_full) for broker_id, update in sent} == {(1, True), (2, True)}
        for _, update in sent:
            (partition,) = update.partitions
            assert (partition.record.leader, partition.record.isr) == (2, (2,))
            assert partition.record.leader_epoch == 1
        await host.run(put(counter(1)))

    run(
        script,
        lambda server: server.open(FailingSession),
        is_controller=False,
        stored=[lossy, *replicated("t", 1, 2)],
    )


def test_the_controller_reacts_to_brokers_that_fail_and_return() -> None:
    """R7: leaders move to brokers that are up, and every broker is notified once."""

    async def script(scenario: Scenario) -> None:
        host = scenario.host
        third = scenario.server.open()
        third.commit([Put(broker(2))])
        scenario.another.commit([Put(broker(1))])
        await scenario.until(lambda: 1 in host.image.brokers and 2 in host.image.brokers)
        await host.run(put(*replicated("t", 1, 2)))
        sent = host.context.channels.sent
        assert {broker_id for broker_id, update in sent if update.is_full} == {1, 2}
        sent.clear()
        scenario.another.close()
        key = TopicPartition("t", 0)
        await scenario.until(lambda: host.image.partitions[key].leader == 2)
        state = host.image.partitions[key]
        assert (state.isr, state.leader_epoch) == ((2,), 1)
        assert 1 not in host.image.brokers
        updates = [update for broker_id, update in sent if broker_id == 2]
        assert [len(update.partitions) for update in updates] == [0, 1]
        assert all(broker_id == 2 for broker_id, _ in sent)

    run(script)


def test_a_new_controller_continues_the_deletion_of_a_topic() -> None:
    """The stops follow the full updates, although its first decision has other changes as well."""

    async def script(scenario: Scenario) -> None:
        host = scenario.host
        sent = host.context.channels.sent
        await scenario.until(lambda: any(update.stops for _, update in sent))
        kinds = [
            "full" if update.is_full else [stop.key.topic for stop in update.stops]
            for broker_id, update in sent
            if broker_id == 1
        ]
        assert kinds == ["full", ["t"]]

    failed = replicated("u", 7, 1)  # broker 7 is down
    run(script, stored=[broker(1), *replicated("t", 1, 0), *failed, TopicDeletionRecord("t")])


def test_changes_between_two_sessions_are_loaded_although_later_ones_were_delivered() -> None:
    """R6: a broker that is no longer the controller must know the one that replaced it."""

    async def script(scenario: Scenario) -> None:
        host, server, store = scenario.host, scenario.server, scenario.store
        assert isinstance(store, MemoryStore)
        server.end(store)
        scenario.another.commit([Put(ControllerEpochRecord(9)), Put(ControllerRecord(7, 1))])
        server.begin(store)
        scenario.another.commit([Put(counter(1))])
        await scenario.until(lambda: host.image.config("users", "counter") == {"n": "1"})
        store.notify(SessionState.EXPIRED)
        store.notify(SessionState.CONNECTED)
        await scenario.until(lambda: host.image.controller_id == 7)
        assert not host.is_active

    run(script)
