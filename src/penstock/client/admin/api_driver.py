"""The requests of admin calls: their brokers, retries and deadlines.

`_request_until_done` sends one request until a broker has responded without an error.
`_request_each` is for calls with many keys: a `LookupStrategy` finds the broker of each key, every
broker gets one request with all of its keys, and keys that failed with a retriable error are
requested again. Both retry until the deadline. (Kafka's names: AdminApiDriver, AdminApiHandler,
AdminApiLookupStrategy.)
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from penstock.client.admin.advice import BrokerTooOldError, broker_error, unsupported_error
from penstock.client.admin.errors import AdminError
from penstock.client.errors import ClientError, DisconnectError, KafkaTimeoutError
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError, nested_text
from penstock.core.ids import TopicPartition
from penstock.net.client.cluster import Cluster
from penstock.net.client.network_client import NetworkClient, RequestBuilder
from penstock.protocol.fields import Message

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Message)

LookupStrategy: TypeAlias = Callable[[Sequence[K]], Awaitable[Mapping[K, int | KafkaError]]]
SendRequest: TypeAlias = Callable[[int, Sequence[K]], Awaitable[Mapping[K, V | KafkaError]]]

UNKNOWN_TOPIC_GRACE_MS: Final = 2_000
"""How long requests for an unknown topic are repeated: it may just have been created."""

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
"""Errors of a leader that are retried, since the leader may be changing."""


class NodeProvider(Enum):
    """The choice of a broker without a fixed id."""

    ANY = "any"
    CONTROLLER = "controller"


class Failure(NamedTuple):
    """Why a key failed; `is_lost`: without a response, so that it may still be done."""

    error: KafkaError
    is_lost: bool = False

    def after(self, previous: "Failure | None") -> "Failure":
        """Returns the more specific failure: a lost connection rather than a timeout after it."""
        is_late = self.is_lost and isinstance(self.error, KafkaTimeoutError)
        if is_late and previous is not None and isinstance(previous.error, DisconnectError):
            return previous
        return self


class _HasCode(Protocol):
    error_code: int


class _HasMessage(_HasCode, Protocol):
    error_message: str | None


def code_only(response: _HasCode) -> tuple[int, str | None]:
    return response.error_code, None


def code_and_message(response: _HasMessage) -> tuple[int, str | None]:
    return response.error_code, response.error_message


class AdminApiDriver:
    """The base of all admin calls. Everything runs on one loop."""

    def __init__(
        self, network: NetworkClient, *, retries: int, default_api_timeout_ms: int
    ) -> None:
        self._network = network
        self._request_timeout_ms = network.settings.request_timeout_ms
        self._api_timeout_ms = default_api_timeout_ms
        self._retries = retries
        self._backoff = network.retry_backoff
        self._unreachable: dict[int, DisconnectError] = {}
        """The last error of brokers that cannot be reached."""

    async def start(self) -> None:
        """Starts the client; `async with` does so too."""
        await self._network.start()

    async def close(self) -> None:
        """Closes all connections; calls under way fail. May be called twice."""
        await self._network.close()

    def _deadline(self, timeout_ms: int | None) -> int:
        now_ms = self._network.clock.monotonic_ms()
        return now_ms + (self._api_timeout_ms if timeout_ms is None else timeout_ms)

    def _remaining_ms(self, deadline_ms: int) -> int:
        """Returns the timeout of one request."""
        remaining_ms = deadline_ms - self._network.clock.monotonic_ms()
        return max(1, min(remaining_ms, self._request_timeout_ms))

    async def _request_until_done(
        self,
        call: str,
        provider: NodeProvider | int,
        message: Message | RequestBuilder,
        response_type: type[R],
        deadline_ms: int,
        *,
        get_error: Callable[[R], tuple[int, str | None]] | None = None,
        required: tuple[int, str] | None = None,
    ) -> R:
        """Sends a request until a broker has responded without an error; raises other errors.

        `get_error` returns code and message of a response as a whole; retriable ones are retried.
        `required` is the lowest version that the call needs, and the first Kafka that has it.
        """
        attempts = 0
        error: ClientError | None = None
        while True:
            try:
                node_id = await self._select_node(provider, deadline_ms, refresh=attempts > 0)
                response = await self._request(
                    call, node_id, message, response_type, deadline_ms, required=required
                )
            except DisconnectError as lost:
                error = lost
            except KafkaTimeoutError as timeout:
                # A lost connection is a more specific cause than a timeout after it.
                error = error if isinstance(error, DisconnectError) else timeout
            else:
                code, text = (0, None) if get_error is None else get_error(response)
                if code == ErrorCode.NONE:
                    return response
                error = broker_error(code, f"`{call}`", text)
                if not error.retriable or error.code in UNKNOWN_TOPIC_CODES:
                    raise error
            attempts += 1
            await self._wait_or_raise(call, attempts, deadline_ms, error)

    async def _request(
        self,
        call: str,
        node_id: int,
        message: Message | RequestBuilder,
        response_type: type[R],
        deadline_ms: int,
        *,
        required: tuple[int, str] | None = None,
        max_version: int | None = None,
    ) -> R:
        """Sends one request once; `required` as in `_request_until_done`."""
        try:
            response = await self._network.within(
                deadline_ms,
                lambda: self._network.request(
                    node_id,
                    message,
                    response_type,
                    timeout_ms=self._remaining_ms(deadline_ms),
                    min_version=0 if required is None else required[0],
                    max_version=max_version,
                ),
            )
        except BrokerTooOldError:
            raise
        except DisconnectError as lost:
            self._unreachable[node_id] = lost
            raise
        except KafkaTimeoutError as timeout:
            raise _timeout_error(timeout, self._unreachable.get(node_id)) from None
        except UnsupportedVersionError as unsupported:
            request = message.request_type if isinstance(message, RequestBuilder) else type(message)
            if request.INFO.key is None:
                raise
            broker = self._describe_node(node_id)
            raise unsupported_error(call, request.INFO.key, broker, required) from unsupported
        self._unreachable.pop(node_id, None)
        return response

    async def _request_each(
        self,
        call: str,
        keys: Iterable[K],
        look_up: LookupStrategy[K],
        send: SendRequest[K, V],
        deadline_ms: int,
        *,
        retriable: Collection[ErrorCode],
    ) -> dict[K, V]:
        """Requests each key from its broker; raises AdminError if some fail permanently.

        `send` sends the keys of one broker, and returns a value or an error for each. Errors with
        the `retriable` codes are retried.
        """
        requested = unique_keys(call, keys)
        results: dict[K, V] = {}
        failures: dict[K, Failure] = {}
        started_ms = self._network.clock.monotonic_ms()
        pending = requested
        attempts = 0
        while pending:
            try:
                failed = await self._attempt(pending, look_up, send, results)
            except KafkaTimeoutError:
                if not failures:
                    raise
                break
            attempts += 1
            for key in pending:
                previous = failures.pop(key, None)
                if key in failed:
                    failures[key] = failed[key].after(previous)
            is_in_grace = self._network.clock.monotonic_ms() - started_ms < UNKNOWN_TOPIC_GRACE_MS
            retried_codes = set(retriable) if is_in_grace else set(retriable) - UNKNOWN_TOPIC_CODES
            pending = [
                key
                for key in pending
                if key in failures
                and (failures[key].is_lost or failures[key].error.code in retried_codes)
            ]
            if pending and not await self._wait_before_retry(attempts, deadline_ms):
                break
        if not failures:
            return {key: results[key] for key in requested}
        if len(failures) == len(requested) and all(
            failure.is_lost for failure in failures.values()
        ):
            raise _retries_exhausted(call, attempts, next(iter(failures.values())).error)
        raise AdminError(
            call,
            {key: failures[key].error for key in requested if key in failures},
            {key: results[key] for key in requested if key in results},
        )

    async def _attempt(
        self,
        keys: Sequence[K],
        look_up: LookupStrategy[K],
        send: SendRequest[K, V],
        results: dict[K, V],
    ) -> dict[K, Failure]:
        """Requests each key once; adds to `results` and returns the failures."""
        failed: dict[K, Failure] = {}
        by_node: dict[int, list[K]] = {}
        try:
            located = await look_up(keys)
        except (DisconnectError, KafkaTimeoutError) as lost:
            if isinstance(lost, KafkaTimeoutError) and isinstance(lost.__cause__, KafkaError):
                raise  # the lookup has retried until the deadline
            return dict.fromkeys(keys, Failure(lost, True))
        for key in keys:
            node = located[key]
            if isinstance(node, KafkaError):
                failed[key] = Failure(node)
            else:
                by_node.setdefault(node, []).append(key)

        async def request(node_id: int, node_keys: Sequence[K]) -> None:
            try:
                responses = await send(node_id, node_keys)
            except (DisconnectError, KafkaTimeoutError) as lost:
                self._network.metadata.request_update()
                failed.update(dict.fromkeys(node_keys, Failure(lost, True)))
                return
            for key in node_keys:
                if key not in responses:
                    broker = self._describe_node(node_id)
                    missing = f"the response of {broker} has no result for {key}"
                    failed[key] = Failure(ClientError(missing))
                elif isinstance(response := responses[key], KafkaError):
                    failed[key] = Failure(response)
                else:
                    results[key] = response

        await gather_all(request(*entry) for entry in by_node.items())
        return failed

    async def _wait_or_raise(
        self, call: str, attempts: int, deadline_ms: int, error: KafkaError
    ) -> None:
        """Waits before the next attempt; raises KafkaTimeoutError if there is none."""
        if not await self._wait_before_retry(attempts, deadline_ms):
            raise _retries_exhausted(call, attempts, error) from error

    async def _wait_before_retry(self, attempts: int, deadline_ms: int) -> bool:
        """Waits for the backoff; returns False if the deadline or `retries` allow no attempt."""
        delay_ms = self._backoff.delay_ms(attempts - 1)
        remaining_ms = deadline_ms - self._network.clock.monotonic_ms()
        if delay_ms >= remaining_ms or attempts > self._retries:
            return False
        await asyncio.sleep(delay_ms / 1000)
        return True

    async def _select_node(
        self, provider: NodeProvider | int, deadline_ms: int, *, refresh: bool = False
    ) -> int:
        """Returns the id of a broker; raises BROKER_NOT_AVAILABLE if there is none."""
        if provider is NodeProvider.ANY:
            return self._network.least_loaded_node()
        cluster = self._network.metadata.cluster
        # Bootstrap servers have negative ids, as an unknown controller has.
        requested = provider if isinstance(provider, int) else cluster.controller_id
        if refresh or requested < 0 or requested not in cluster.nodes:
            cluster = await self._update_metadata(deadline_ms)
        if isinstance(provider, int):
            self._check_node(provider, cluster)
            return provider
        if cluster.controller_id not in cluster.nodes:
            # Some clusters hide their controller; any broker forwards the request.
            return self._network.least_loaded_node()
        return cluster.controller_id

    async def _look_up_brokers(
        self, ids: Iterable[int], deadline_ms: int
    ) -> dict[int, int | KafkaError]:
        """Returns each id, or the error that there is no such broker."""
        node_ids: dict[int, int | KafkaError] = {}
        for node_id in ids:
            try:
                node_ids[node_id] = await self._select_node(node_id, deadline_ms)
            except KafkaError as error:
                if error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                    raise
                node_ids[node_id] = error
        return node_ids

    def _check_node(self, node_id: int, cluster: Cluster) -> None:
        if node_id < 0 or node_id not in cluster.nodes:
            available = ", ".join(map(str, sorted(cluster.nodes)))
            raise ClientError(
                f"there is no broker {node_id} among those that are up ({available}); check the "
                "id, or start it",
                ErrorCode.BROKER_NOT_AVAILABLE,
            )

    def _describe_node(self, node_id: int) -> str:
        node = self._network.metadata.cluster.nodes.get(node_id)
        return f"broker {node_id}" if node is None else f"broker {node}"

    def _single_node(self, provider: NodeProvider | int, deadline_ms: int) -> LookupStrategy[Any]:
        """Returns the strategy for keys that are all sent to one broker."""
        attempts = 0

        async def look_up(keys: Sequence[K]) -> Mapping[K, int | KafkaError]:
            nonlocal attempts
            node_id = await self._select_node(provider, deadline_ms, refresh=attempts > 0)
            attempts += 1
            return dict.fromkeys(keys, node_id)

        return look_up

    def _broker_ids(self, deadline_ms: int) -> LookupStrategy[int]:
        """Returns the strategy for keys that are ids of brokers."""

        async def look_up(ids: Sequence[int]) -> Mapping[int, int | KafkaError]:
            return await self._look_up_brokers(ids, deadline_ms)

        return look_up

    async def _update_metadata(self, deadline_ms: int) -> Cluster:
        try:
            return await self._network.within(deadline_ms, self._network.update_metadata)
        except KafkaTimeoutError as timeout:
            raise _timeout_error(
                timeout, next(reversed(self._unreachable.values()), None)
            ) from None

    async def _refresh_brokers(self, call: str, deadline_ms: int) -> Cluster:
        """Returns new metadata with the brokers that are up."""
        attempts = 0
        while True:
            try:
                return await self._update_metadata(deadline_ms)
            except (DisconnectError, KafkaTimeoutError) as lost:
                attempts += 1
                await self._wait_or_raise(call, attempts, deadline_ms, lost)


def _retries_exhausted(call: str, attempts: int, error: KafkaError) -> KafkaTimeoutError:
    count = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return KafkaTimeoutError(
        f"was not done in time, after {count}; the last one: {nested_text(error)}",
        operation=call,
    )


def _timeout_error(timeout: KafkaTimeoutError, cause: DisconnectError | None) -> KafkaTimeoutError:
    """Returns the timeout with the reason why the broker cannot be reached."""
    if cause is None or cause.message in timeout.message:
        return timeout
    return KafkaTimeoutError(f"{nested_text(timeout)}: {nested_text(cause)}")


def unique_keys(call: str, items: Iterable[K]) -> list[K]:
    """Returns the items without duplicates. Raises TypeError for a single one.

    A text would be taken for its letters, a `TopicPartition` for its parts.
    """
    check_collection(call, items)
    return list(dict.fromkeys(items))


def check_collection(call: str, items: object) -> None:
    if isinstance(items, str | bytes) or hasattr(items, "_fields"):
        raise TypeError(f"{call} takes several, not one: put it into a list, [{items!r}]")


async def gather_all(work: Iterable[Coroutine[Any, Any, V]]) -> list[V]:
    """Runs all at the same time; if one raises, cancels the others first."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Returns the partition numbers of each topic, in their order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
