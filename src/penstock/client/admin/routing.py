"""How calls find their broker: any, the controller, a given one, leaders, coordinators.

`_ask` sends one request until it is answered, `_each` asks about many things at once: it finds the
broker of each, asks every broker once about all of its things, and goes on with those that have
to be tried again. Both go on until the deadline.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from penstock.client.admin.advice import BrokerTooOldError, explain, not_served
from penstock.client.admin.errors import AdminError
from penstock.client.errors import ClientError, DisconnectError, KafkaTimeoutError
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster
from penstock.net.client.network_client import NetworkClient, RequestBuilder
from penstock.protocol.fields import Message

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Message)

Locate: TypeAlias = Callable[[Sequence[K]], Awaitable[Mapping[K, int | KafkaError]]]
Send: TypeAlias = Callable[[int, Sequence[K]], Awaitable[Mapping[K, V | KafkaError]]]

UNKNOWN_TOPIC_GRACE_MS: Final = 2_000
"""A topic that was just made is not known to every broker yet: so long it is asked for again."""

CONTROLLER_CODES: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
COORDINATOR_CODES: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
UNKNOWN_TOPIC_CODES: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)
LEADER_CODES: Final = UNKNOWN_TOPIC_CODES | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}
"""What a partition's leader may answer while the leader changes."""


class Where(Enum):
    """Brokers that have no fixed id."""

    ANY = "any"
    CONTROLLER = "controller"


class Failure(NamedTuple):
    """Why something was not done; `is_lost` where no answer came, so that it may be done later."""

    error: KafkaError
    is_lost: bool = False

    def after(self, before: "Failure | None") -> "Failure":
        """What kept a broker from being reached says more than that time is up."""
        is_late = self.is_lost and isinstance(self.error, KafkaTimeoutError)
        if is_late and before is not None and isinstance(before.error, DisconnectError):
            return before
        return self


class Router:
    """What every call is made of. All on one loop."""

    def __init__(
        self, network: NetworkClient, *, retries: int, default_api_timeout_ms: int
    ) -> None:
        self._network = network
        self._request_timeout_ms = network.settings.request_timeout_ms
        self._api_timeout_ms = default_api_timeout_ms
        self._retries = retries
        self._backoff = network.retry_backoff
        self._unreachable: dict[int, DisconnectError] = {}
        """Why brokers could not be reached, until they are."""

    async def start(self) -> None:
        """Begin to look after connections: `async with` does it."""
        await self._network.start()

    async def close(self) -> None:
        """Close all connections; calls that wait fail. May be called twice."""
        await self._network.close()

    def _deadline(self, timeout_ms: int | None) -> int:
        now_ms = self._network.clock.monotonic_ms()
        return now_ms + (self._api_timeout_ms if timeout_ms is None else timeout_ms)

    def _left_ms(self, deadline_ms: int) -> int:
        """Time for one request."""
        left_ms = deadline_ms - self._network.clock.monotonic_ms()
        return max(1, min(left_ms, self._request_timeout_ms))

    async def _ask(
        self,
        call: str,
        where: Where | int,
        message: Message | RequestBuilder,
        answer: type[R],
        deadline_ms: int,
        *,
        verdict: Callable[[R], tuple[int, str | None]] | None = None,
        needs: tuple[int, str] | None = None,
    ) -> R:
        """Send a request until a broker answers it well; raise what it says otherwise.

        `verdict` finds the error of the answer as a whole; a retriable one is tried again. `needs`
        is the version that it takes at least, and the first Kafka that has it.
        """
        attempts = 0
        error: ClientError | None = None
        while True:
            try:
                node_id = await self._find(where, deadline_ms, refresh=attempts > 0)
                response = await self._request(
                    call, node_id, message, answer, deadline_ms, needs=needs
                )
            except DisconnectError as lost:
                error = lost
            except KafkaTimeoutError as late:
                # What kept the broker from being reached says more than that time is up.
                error = error if isinstance(error, DisconnectError) else late
            else:
                code, words = (0, None) if verdict is None else verdict(response)
                if code == ErrorCode.NONE:
                    return response
                error = explain(code, call, words)
                if not error.retriable or error.code in UNKNOWN_TOPIC_CODES:
                    raise error
            attempts += 1
            await self._pause(call, attempts, deadline_ms, error)

    async def _request(
        self,
        call: str,
        node_id: int,
        message: Message | RequestBuilder,
        answer: type[R],
        deadline_ms: int,
        *,
        needs: tuple[int, str] | None = None,
        max_version: int | None = None,
    ) -> R:
        """Send one request once; `needs` as in `_ask`."""
        try:
            response = await self._network.within(
                deadline_ms,
                lambda: self._network.request(
                    node_id,
                    message,
                    answer,
                    timeout_ms=self._left_ms(deadline_ms),
                    min_version=0 if needs is None else needs[0],
                    max_version=max_version,
                ),
            )
        except BrokerTooOldError:
            raise
        except DisconnectError as lost:
            self._unreachable[node_id] = lost
            raise
        except KafkaTimeoutError as late:
            raise _late(late, self._unreachable.get(node_id)) from None
        except UnsupportedVersionError as unsupported:
            request = message.request_type if isinstance(message, RequestBuilder) else type(message)
            if request.INFO.key is None:
                raise
            raise not_served(call, request.INFO.key, self._name(node_id), needs) from unsupported
        self._unreachable.pop(node_id, None)
        return response

    async def _each(
        self,
        call: str,
        keys: Iterable[K],
        locate: Locate[K],
        send: Send[K, V],
        deadline_ms: int,
        *,
        retriable: Collection[ErrorCode],
    ) -> dict[K, V]:
        """Ask about each key at its broker; AdminError where some fail for good.

        `send` asks one broker about some keys and gives a value or an error for each.
        """
        wanted = several(call, keys)
        results: dict[K, V] = {}
        failures: dict[K, Failure] = {}
        began_ms = self._network.clock.monotonic_ms()
        pending = wanted
        attempts = 0
        while pending:
            try:
                failed = await self._round(pending, locate, send, results)
            except KafkaTimeoutError:
                if not failures:
                    raise
                break
            attempts += 1
            for key in pending:
                before = failures.pop(key, None)
                if key in failed:
                    failures[key] = failed[key].after(before)
            in_grace = self._network.clock.monotonic_ms() - began_ms < UNKNOWN_TOPIC_GRACE_MS
            hopeful = set(retriable) if in_grace else set(retriable) - UNKNOWN_TOPIC_CODES
            pending = [
                key
                for key in pending
                if key in failures
                and (failures[key].is_lost or failures[key].error.code in hopeful)
            ]
            if pending and not await self._wait(attempts, deadline_ms):
                break
        if not failures:
            return {key: results[key] for key in wanted}
        if len(failures) == len(wanted) and all(each.is_lost for each in failures.values()):
            raise _given_up(call, attempts, next(iter(failures.values())).error)
        raise AdminError(
            call,
            {key: failures[key].error for key in wanted if key in failures},
            {key: results[key] for key in wanted if key in results},
        )

    async def _round(
        self, keys: Sequence[K], locate: Locate[K], send: Send[K, V], results: dict[K, V]
    ) -> dict[K, Failure]:
        """Ask about each key once; what failed."""
        failed: dict[K, Failure] = {}
        by_node: dict[int, list[K]] = {}
        try:
            located = await locate(keys)
        except (DisconnectError, KafkaTimeoutError) as lost:
            if isinstance(lost, KafkaTimeoutError) and isinstance(lost.__cause__, KafkaError):
                raise  # the lookup has tried until the deadline itself
            return dict.fromkeys(keys, Failure(lost, True))
        for key in keys:
            place = located[key]
            if isinstance(place, KafkaError):
                failed[key] = Failure(place)
            else:
                by_node.setdefault(place, []).append(key)

        async def ask(node_id: int, some: Sequence[K]) -> None:
            try:
                answers = await send(node_id, some)
            except (DisconnectError, KafkaTimeoutError) as lost:
                self._network.metadata.request_update()
                failed.update(dict.fromkeys(some, Failure(lost, True)))
                return
            for key in some:
                if key not in answers:
                    silent = f"the answer of {self._name(node_id)} says nothing about {key}"
                    failed[key] = Failure(ClientError(silent))
                elif isinstance(answer := answers[key], KafkaError):
                    failed[key] = Failure(answer)
                else:
                    results[key] = answer

        await together(ask(node_id, some) for node_id, some in by_node.items())
        return failed

    async def _pause(self, call: str, attempts: int, deadline_ms: int, error: KafkaError) -> None:
        """Wait before the next attempt; KafkaTimeoutError where there is none."""
        if not await self._wait(attempts, deadline_ms):
            raise _given_up(call, attempts, error) from error

    async def _wait(self, attempts: int, deadline_ms: int) -> bool:
        """Wait after so many attempts; whether there may be another one."""
        delay_ms = self._backoff.delay_ms(attempts - 1)
        left_ms = deadline_ms - self._network.clock.monotonic_ms()
        if delay_ms >= left_ms or attempts > self._retries:
            return False
        await asyncio.sleep(delay_ms / 1000)
        return True

    async def _find(self, where: Where | int, deadline_ms: int, *, refresh: bool = False) -> int:
        """The id of a broker to ask."""
        if where is Where.ANY:
            return self._network.least_loaded_node()
        cluster = self._network.metadata.cluster
        # Bootstrap servers have negative ids, like a controller that is not known.
        wanted = where if isinstance(where, int) else cluster.controller_id
        if refresh or wanted < 0 or wanted not in cluster.nodes:
            cluster = await self._update_metadata(deadline_ms)
        if isinstance(where, int):
            self._check_node(where, cluster)
            return where
        if cluster.controller_id not in cluster.nodes:
            # Some clusters do not tell who it is; any broker passes the request on.
            return self._network.least_loaded_node()
        return cluster.controller_id

    async def _these(self, ids: Iterable[int], deadline_ms: int) -> dict[int, int | KafkaError]:
        """Each broker itself, or the error that there is none."""
        places: dict[int, int | KafkaError] = {}
        for node_id in ids:
            try:
                places[node_id] = await self._find(node_id, deadline_ms)
            except KafkaError as error:
                if error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                    raise
                places[node_id] = error
        return places

    def _check_node(self, node_id: int, cluster: Cluster) -> None:
        if node_id < 0 or node_id not in cluster.nodes:
            there = ", ".join(map(str, sorted(cluster.nodes)))
            raise ClientError(
                f"there is no broker {node_id} among those that are up ({there}): check the id, or "
                "start it",
                ErrorCode.BROKER_NOT_AVAILABLE,
            )

    def _name(self, node_id: int) -> str:
        node = self._network.metadata.cluster.nodes.get(node_id)
        return f"broker {node_id}" if node is None else f"broker {node}"

    def _at(self, where: Where | int, deadline_ms: int) -> Locate[Any]:
        """Everything is at one broker."""
        attempts = 0

        async def locate(keys: Sequence[K]) -> Mapping[K, int | KafkaError]:
            nonlocal attempts
            node_id = await self._find(where, deadline_ms, refresh=attempts > 0)
            attempts += 1
            return dict.fromkeys(keys, node_id)

        return locate

    async def _update_metadata(self, deadline_ms: int) -> Cluster:
        try:
            return await self._network.within(deadline_ms, self._network.update_metadata)
        except KafkaTimeoutError as late:
            raise _late(late, next(reversed(self._unreachable.values()), None)) from None

    async def _brokers(self, call: str, deadline_ms: int) -> Cluster:
        """The brokers that are up now."""
        attempts = 0
        while True:
            try:
                return await self._update_metadata(deadline_ms)
            except (DisconnectError, KafkaTimeoutError) as lost:
                attempts += 1
                await self._pause(call, attempts, deadline_ms, lost)


def _given_up(call: str, attempts: int, error: KafkaError) -> KafkaTimeoutError:
    times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return KafkaTimeoutError(
        f"{call} was not done in time, after {times}; the last one: {error.message}"
    )


def _late(late: KafkaTimeoutError, why: DisconnectError | None) -> KafkaTimeoutError:
    """With what kept the broker from being reached, which says more than that time is up."""
    if why is None or why.message in late.message:
        return late
    return KafkaTimeoutError(f"{late.message}: {why.message}")


def several(call: str, items: Iterable[K]) -> list[K]:
    """The items, each once. One alone is a mistake that would not be noticed otherwise.

    A text is a sequence of letters, a `TopicPartition` one of its parts.
    """
    check_several(call, items)
    return list(dict.fromkeys(items))


def check_several(call: str, items: object) -> None:
    if isinstance(items, str | bytes) or hasattr(items, "_fields"):
        raise TypeError(f"{call} takes several, not one: put it into a list, [{items!r}]")


async def together(work: Iterable[Coroutine[Any, Any, V]]) -> list[V]:
    """Run all at once; where one raises, the others are cancelled first."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic, in their order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
