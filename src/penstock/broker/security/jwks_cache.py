"""The keys of token issuers: fetched on threads, kept, and fetched again when that is due (X2).

A broker starts, and serves other logins, while an issuer does not respond: its tokens are refused
until its keys were fetched.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from penstock.core.clock import Clock
from penstock.core.errors import KafkaError
from penstock.net.http.client import (
    HttpClientError,
    HttpTimeouts,
    issuer_tls,
    read_file_url,
    send_request,
)
from penstock.security.oauth.key_refresh import KeyRefresh
from penstock.security.oauth.key_set import KeySet, KeySetError, parse_key_set
from penstock.security.sasl.oauthbearer import KeySourceSettings

logger = logging.getLogger(__name__)

_MAX_WAIT_S: Final = 5.0
"""How long a login waits for keys."""

Fetch = Callable[[KeySourceSettings], bytes]


def fetch_key_set(settings: KeySourceSettings) -> bytes:
    """Returns the document at a URL; raises HttpClientError. Blocks."""
    if settings.url.lower().startswith("file:"):
        return read_file_url(settings.url)
    try:
        tls = issuer_tls(dict(settings.tls))
    except KafkaError as error:
        raise HttpClientError(error.message) from None
    timeouts = HttpTimeouts(settings.connect_timeout_ms, settings.read_timeout_ms)
    reply = send_request(settings.url, tls=tls, timeouts=timeouts)
    if reply.status != 200:
        raise HttpClientError(f"{settings.url} responded with HTTP status {reply.status}")
    return reply.body


class JwksCache:
    """The keys at one URL."""

    def __init__(
        self, settings: KeySourceSettings, clock: Clock, fetch: Fetch = fetch_key_set
    ) -> None:
        self.keys: KeySet | None = None
        self.problem = ""
        self.fetches = 0
        self._settings = settings
        self._clock = clock
        self._fetch = fetch
        self._document = b""
        self._schedule = KeyRefresh(settings.refresh, clock.monotonic_ms())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fetched: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def start(self) -> None:
        """Begins to fetch the keys. Call it on the event loop, once."""
        self._loop = asyncio.get_running_loop()
        self._begin(was_scheduled=True)

    def close(self) -> None:
        """Fetches nothing any more; a fetch that has begun ends by itself."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def refresh(self) -> Awaitable[None] | None:
        if self._fetched is None:
            if self._is_closed or not self._schedule.allows_fetch(self._clock.monotonic_ms()):
                return None
            self._begin(was_scheduled=False)
        assert self._fetched is not None
        return _wait(self._fetched)

    def _begin(self, *, was_scheduled: bool) -> None:
        assert self._loop is not None
        if self._is_closed or self._fetched is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._fetched = self._loop.create_future()
        self.fetches += 1
        # Not a thread of a pool: the broker must not wait for an issuer when it stops.
        threading.Thread(
            target=self._run, args=(was_scheduled,), name="penstock-jwks", daemon=True
        ).start()

    def _run(self, was_scheduled: bool) -> None:
        assert self._loop is not None
        document, keys, problem = b"", None, ""
        try:
            document = self._fetch(self._settings)
            keys = parse_key_set(document)
        except HttpClientError as error:
            problem = str(error)
        except KeySetError as error:
            problem = f"{self._settings.url} is not a JWKS: {error}"
        except Exception as error:
            logger.exception("fetching keys from %s failed", self._settings.url)
            problem = f"{self._settings.url}: {type(error).__name__}"
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._end, document, keys, problem, was_scheduled)

    def _end(self, document: bytes, keys: KeySet | None, problem: str, was_scheduled: bool) -> None:
        assert self._loop is not None
        assert self._fetched is not None
        now_ms = self._clock.monotonic_ms()
        if keys is None:
            self._schedule.failed(now_ms)
            if problem != self.problem:
                effect = "no token is accepted" if self.keys is None else "the old keys stay"
                logger.error(
                    "the keys of the token issuer cannot be fetched: %s; %s until they can, see "
                    "sasl.oauthbearer.jwks.endpoint.url",
                    problem,
                    effect,
                )
        else:
            has_changed = document != self._document
            self._schedule.succeeded(now_ms, has_changed=has_changed, was_scheduled=was_scheduled)
            if has_changed:
                logger.info("fetched the keys of the token issuer from %s", self._settings.url)
            self.keys, self._document = keys, document
        self.problem = problem
        fetched, self._fetched = self._fetched, None
        fetched.set_result(None)
        if not self._is_closed:
            delay_s = max(0, self._schedule.next_ms - now_ms) / 1000
            self._timer = self._loop.call_later(delay_s, lambda: self._begin(was_scheduled=True))


async def _wait(fetched: "asyncio.Future[None]") -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_MAX_WAIT_S):
            await asyncio.shield(fetched)


class JwksCaches:
    """The keys of all issuers that the settings of a broker name."""

    def __init__(self, clock: Clock, fetch: Fetch = fetch_key_set) -> None:
        self._clock = clock
        self._fetch = fetch
        self._caches: dict[KeySourceSettings, JwksCache] = {}

    def get(self, settings: KeySourceSettings) -> JwksCache:
        """Returns the keys at a URL, which are fetched from now on. Call it on the event loop."""
        cache = self._caches.get(settings)
        if cache is None:
            cache = self._caches[settings] = JwksCache(settings, self._clock, self._fetch)
            cache.start()
        return cache

    def close(self) -> None:
        for cache in self._caches.values():
            cache.close()
