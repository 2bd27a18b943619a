"""The requests of admin calls: their retries and deadlines.

`AdminCall.request_until_done` sends one request until a broker has responded without an error.
`AdminCall.request_each` is for calls with many keys: a `LookupStrategy` finds the broker of each
key, every broker gets one request with all of its keys, and keys that failed with a retriable error
are requested again. Both retry until the deadline. (Kafka's names: AdminApiDriver, AdminApiHandler,
AdminApiLookupStrategy.)
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from penstock.client.admin.advice import BrokerTooOldError, response_error, unsupported_error
from penstock.client.admin.errors import AdminError
from penstock.client.errors import ClientError, DisconnectError, KafkaTimeoutError
from penstock.core.errors import ErrorCode, KafkaError, UnsupportedVersionError, nested_text
from penstock.net.client.cluster import Cluster
from penstock.net.client.network_client import NetworkClient, Request
from penstock.protocol.fields import Message

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Message)

Results: TypeAlias = Mapping[K, V | KafkaError]
"""The value or error of each key."""
SendRequest: TypeAlias = Callable[[int, Sequence[K]], Awaitable[Results[K, V]]]
"""Sends the keys of a broker to it, and returns their results."""

UNKNOWN_TOPIC_GRACE_MS: Final = 2_000
"""How long requests for an unknown topic are repeated: it may just have been created."""

UNKNOWN_TOPIC_CODES: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
)


class LookupStrategy(NamedTuple, Generic[K]):
    """How the brokers of keys are found, and which of their errors are retried."""

    find: Callable[[Sequence[K]], Awaitable[Results[K, int]]]
    """Returns the id of each key's broker."""
    retriable: Collection[ErrorCode]


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


class AdminApiDriver:
    """The connections and limits of all calls of an admin client. Everything runs on one loop."""

    def __init__(
        self, network: NetworkClient, *, retries: int, default_api_timeout_ms: int
    ) -> None:
        self._network = network
        self._retries = retries
        self._api_timeout_ms = default_api_timeout_ms
        self._unreachable: dict[int, DisconnectError] = {}
        """The last error of brokers that cannot be reached."""

    async def start(self) -> None:
        """Starts the client; `async with` does so too."""
        await self._network.start()

    async def close(self) -> None:
        """Closes all connections; calls under way fail. May be called twice."""
        await self._network.close()


class AdminCall:
    """One call of the admin client: its name, for errors, its deadline and its requests."""

    def __init__(self, admin: AdminApiDriver, name: str, timeout_ms: int | None) -> None:
        self.name = name
        self.network = admin._network
        self._retries = admin._retries
        self._unreachable = admin._unreachable
        timeout_ms = admin._api_timeout_ms if timeout_ms is None else timeout_ms
        self._deadline_ms = self.network.clock.monotonic_ms() + timeout_ms

    def remaining_ms(self) -> int:
        """Returns the timeout of one request."""
        remaining_ms = self._deadline_ms - self.network.clock.monotonic_ms()
        return max(1, min(remaining_ms, self.network.settings.request_timeout_ms))

    async def within(self, work: Callable[[], Awaitable[V]]) -> V:
        """Returns the result of `work`; raises KafkaTimeoutError after the deadline."""
        return await self.network.within(self._deadline_ms, work)

    async def request_until_done(
        self,
        provider: NodeProvider | int,
        message: Request,
        response_type: type[R],
        *,
        required: tuple[int, str] | None = None,
        check_error: bool = True,
    ) -> R:
        """Sends a request until a broker has responded without an error; raises other errors.

        A retriable error of the response as a whole is retried, unless `check_error` is False.
        `required` is the lowest version that the call needs, and the first Kafka that has it.
        """
        attempts = 0
        error: ClientError | None = None
        while True:
            try:
                node_id = await self.select_node(provider, refresh=attempts > 0)
                response = await self.request(node_id, message, response_type, required=required)
            except DisconnectError as lost:
                error = lost
            except KafkaTimeoutError as timeout:
                # A lost connection is a more specific cause than a timeout after it.
                error = error if isinstance(error, DisconnectError) else timeout
            else:
                error = response_error(response, f"`{self.name}`") if check_error else None
                if error is None:
                    return response
                if not error.retriable or error.code in UNKNOWN_TOPIC_CODES:
                    raise error
            attempts += 1
            await self._wait_or_raise(attempts, error)

    async def request(
        self,
        node_id: int,
        message: Request,
        response_type: type[R],
        *,
        required: tuple[int, str] | None = None,
        max_version: int | None = None,
    ) -> R:
        """Sends one request once; `required` as in `request_until_done`."""
        key = response_type.INFO.key
        assert key is not None
        try:
            response = await self.within(
                lambda: self.network.request(
                    node_id,
                    message,
                    response_type,
                    timeout_ms=self.remaining_ms(),
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
            broker = self.describe_node(node_id)
            raise unsupported_error(self.name, key, broker, required) from unsupported
        self._unreachable.pop(node_id, None)
        return response

    async def request_each(
        self,
        keys: Iterable[K],
        strategy: LookupStrategy[K],
        send: SendRequest[K, V],
        *,
        retriable: Collection[ErrorCode] = (),
    ) -> dict[K, V]:
        """Requests each key from its broker; raises AdminError if some fail permanently.

        Errors with the `retriable` codes, and those of the strategy, are retried.
        """
        requested = unique_keys(self.name, keys)
        results: dict[K, V] = {}
        failures: dict[K, Failure] = {}
        started_ms = self.network.clock.monotonic_ms()
        pending = requested
        attempts = 0
        while pending:
            try:
                failed = await self._attempt(pending, strategy, send, results)
            except KafkaTimeoutError:
                if not failures:
                    raise
                break
            attempts += 1
            for key in pending:
                previous = failures.pop(key, None)
                if key in failed:
                    failures[key] = failed[key].after(previous)
            retried_codes = {*strategy.retriable, *retriable}
            if self.network.clock.monotonic_ms() - started_ms >= UNKNOWN_TOPIC_GRACE_MS:
                retried_codes -= UNKNOWN_TOPIC_CODES
            pending = [
                key
                for key in pending
                if key in failures
                and (failures[key].is_lost or failures[key].error.code in retried_codes)
            ]
            if pending and not await self._wait_before_retry(attempts):
                break
        lost = [failure.error for failure in failures.values() if failure.is_lost]
        if lost and len(lost) == len(requested):
            raise self._retries_exhausted(attempts, lost[0])
        return self.checked(
            {key: failures[key].error if key in failures else results[key] for key in requested}
        )

    def checked(self, results: Results[K, V]) -> dict[K, V]:
        """Returns the results; raises AdminError if some of them are errors."""
        errors = {key: value for key, value in results.items() if isinstance(value, KafkaError)}
        values = {key: value for key, value in results.items() if not isinstance(value, KafkaError)}
        if errors:
            raise AdminError(self.name, errors, values)
        return values

    async def _attempt(
        self,
        keys: Sequence[K],
        strategy: LookupStrategy[K],
        send: SendRequest[K, V],
        results: dict[K, V],
    ) -> dict[K, Failure]:
        """Requests each key once; adds to `results` and returns the failures."""
        failed: dict[K, Failure] = {}
        by_node: dict[int, list[K]] = {}
        try:
            located = await strategy.find(keys)
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
                self.network.metadata.request_update()
                failed.update(dict.fromkeys(node_keys, Failure(lost, True)))
                return
            for key in node_keys:
                if key not in responses:
                    broker = self.describe_node(node_id)
                    missing = f"the response of {broker} has no result for {key}"
                    failed[key] = Failure(ClientError(missing))
                elif isinstance(response := responses[key], KafkaError):
                    failed[key] = Failure(response)
                else:
                    results[key] = response

        await gather_all(request(*entry) for entry in by_node.items())
        return failed

    async def _wait_or_raise(self, attempts: int, error: KafkaError) -> None:
        """Waits before the next attempt; raises KafkaTimeoutError if there is none."""
        if not await self._wait_before_retry(attempts):
            raise self._retries_exhausted(attempts, error) from error

    async def _wait_before_retry(self, attempts: int) -> bool:
        """Waits for the backoff; returns False if the deadline or `retries` allow no attempt."""
        delay_ms = self.network.retry_backoff.delay_ms(attempts - 1)
        remaining_ms = self._deadline_ms - self.network.clock.monotonic_ms()
        if delay_ms >= remaining_ms or attempts > self._retries:
            return False
        await asyncio.sleep(delay_ms / 1000)
        return True

    def _retries_exhausted(self, attempts: int, error: KafkaError) -> KafkaTimeoutError:
        count = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        return KafkaTimeoutError(
            f"was not done in time, after {count}; the last one: {nested_text(error)}",
            operation=self.name,
        )

    # --- brokers

    async def select_node(self, provider: NodeProvider | int, *, refresh: bool = False) -> int:
        """Returns the id of a broker; raises BROKER_NOT_AVAILABLE if there is none."""
        if provider is NodeProvider.ANY:
            return self.network.least_loaded_node()
        cluster = self.network.metadata.cluster
        # Bootstrap servers have negative ids, as an unknown controller has.
        requested = provider if isinstance(provider, int) else cluster.controller_id
        if refresh or requested < 0 or requested not in cluster.nodes:
            cluster = await self._update_metadata()
        if isinstance(provider, int):
            check_node(provider, cluster)
            return provider
        if cluster.controller_id not in cluster.nodes:
            # Some clusters hide their controller; any broker forwards the request.
            return self.network.least_loaded_node()
        return cluster.controller_id

    async def refresh_brokers(self) -> Cluster:
        """Returns new metadata with the brokers that are up."""
        attempts = 0
        while True:
            try:
                return await self._update_metadata()
            except (DisconnectError, KafkaTimeoutError) as lost:
                attempts += 1
                await self._wait_or_raise(attempts, lost)

    async def _update_metadata(self) -> Cluster:
        try:
            return await self.within(self.network.update_metadata)
        except KafkaTimeoutError as timeout:
            last_error = next(reversed(self._unreachable.values()), None)
            raise _timeout_error(timeout, last_error) from None

    def describe_node(self, node_id: int) -> str:
        node = self.network.metadata.cluster.nodes.get(node_id)
        return f"broker {node_id}" if node is None else f"broker {node}"


def check_node(node_id: int, cluster: Cluster) -> None:
    """Raises BROKER_NOT_AVAILABLE if there is no such broker."""
    if node_id < 0 or node_id not in cluster.nodes:
        available = ", ".join(map(str, sorted(cluster.nodes)))
        raise ClientError(
            f"there is no broker {node_id} among those that are up ({available})",
            ErrorCode.BROKER_NOT_AVAILABLE,
            remedy="check the id, or start it",
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
