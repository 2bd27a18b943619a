"""C2, M4: clients that fetch with versions 0 to 3 read what was stored in today's format.

kcat has a setting for the assumed broker version. Other clients use the latest version that the
broker advertises, so these tests run a broker in this process that advertises an old one.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

from penstock.broker.handlers import k01_fetch
from penstock.broker.handlers.table import HANDLERS, HandlerSpec
from penstock.broker.replica.down_conversion import DownConversion
from penstock.protocol.api_key import ApiKey
from tests.support.broker.in_process import running_broker
from tests.support.kafka_clients import ALL
from tests.support.kafka_clients.confluent_client import ConfluentClient
from tests.support.kafka_clients.kcat import KcatClient
from tests.support.kafka_clients.model import Client, Record
from tests.support.kafka_clients.samples import PARTITIONS, as_stored, briefly, comparable, samples

OLD_CODECS = ("none", "gzip", "snappy", "lz4")
FIRST_WITH_TIMES = 2
AGES = {0: "0.8.2", 1: "0.9.0"}
"""The assumed broker version with which librdkafka uses each version of Fetch."""
OLDEST = {
    "aiokafka": 1,
    "confluent-kafka": 0,
    "franz-go": 0,
    **{name: 0 for name in ALL if name.startswith("java-3.")},
}
"""Clients that support such versions, with the oldest version that each can use."""
NO_LZ4_IN_THE_OLDER_FORMAT = ("aiokafka", "franz-go")
"""A codec whose frames have a wrong checksum, which these clients reject."""
TOPICS = {"every-codec": OLD_CODECS, "no-lz4": ("none", "gzip", "snappy")}


def as_read(records: list[Record], version: int) -> list[Record]:
    """Returns the records as old formats represent them: no headers; in v0 no timestamps."""
    plain = [record._replace(headers=()) for record in records]
    return briefly(comparable(plain, timestamps=version >= FIRST_WITH_TIMES))


class OldKcat(KcatClient):
    """kcat configured to assume a broker of an old version."""

    def __init__(self, version: int, **settings: str) -> None:
        super().__init__()
        properties = {
            "api.version.request": "false",
            "broker.version.fallback": AGES[version],
            **settings,
        }
        self._settings = [
            argument for item in properties.items() for argument in ("-X", "=".join(item))
        ]

    def _run(self, bootstrap: str, *arguments: str | bytes, stdin: bytes = b"") -> bytes:
        return super()._run(bootstrap, *self._settings, *arguments, stdin=stdin)


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("version", AGES)
def test_kcat_reads_with_old_fetch_versions(
    version: int,
    codec: str,
    bootstrap: str,
    new_topic: Callable[..., str],
    witness: ConfluentClient,
) -> None:
    """C2, P6: offsets, keys, values and tombstones, from small ones to one megabyte."""
    topic = new_topic(len(PARTITIONS))
    sent = samples()
    witness.produce(bootstrap, topic, sent, codec=codec)
    consumed = OldKcat(version).consume(bootstrap, topic, PARTITIONS, len(sent))
    assert as_read(consumed, version) == as_read(as_stored(sent), version)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_kcat_reads_batches_larger_than_its_fetch_limit(
    codec: str, bootstrap: str, new_topic: Callable[..., str], witness: ConfluentClient
) -> None:
    """P7: librdkafka raises its limit when it receives a truncated message."""
    topic = new_topic(len(PARTITIONS))
    sent = samples()
    witness.produce(bootstrap, topic, sent, codec=codec)
    old = OldKcat(1, **{"fetch.message.max.bytes": "1000"})
    consumed = old.consume(bootstrap, topic, PARTITIONS, len(sent))
    assert as_read(consumed, 1) == as_read(as_stored(sent), 1)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, witness: ConfluentClient) -> Iterator[str]:
    """A broker in this process whose topics have batches compressed with alternating codecs."""
    with running_broker(tmp_path_factory.mktemp("old")) as broker:
        for topic, codecs in TOPICS.items():
            witness.create_topic(broker.bootstrap_servers, topic, len(PARTITIONS), {})
            for codec in codecs:
                witness.produce(broker.bootstrap_servers, topic, samples(), codec=codec)
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def started() -> Iterator[Callable[[str], Client]]:
    """Returns the client of a name, which runs from its first use to the end of the module."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(ALL[name]()))


@pytest.mark.parametrize(
    ("name", "version"),
    [(name, version) for name, oldest in OLDEST.items() for version in range(oldest, 4)],
)
def test_clients_use_the_latest_advertised_fetch_version(
    name: str,
    started: Callable[[str], Client],
    version: int,
    filled: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C2, P6: they use that version and read everything that its format can represent."""
    capable = started(name)
    used: list[int] = []

    def record_version(
        replicas: Any, workers: Any, used_version: int, *arguments: Any
    ) -> DownConversion:
        used.append(used_version)
        return DownConversion(replicas, workers, used_version, *arguments)

    monkeypatch.setitem(HANDLERS, ApiKey.FETCH, HandlerSpec("k01_fetch", 0, version))
    monkeypatch.setattr(k01_fetch, "DownConversion", record_version)
    older = version < FIRST_WITH_TIMES
    topic = "no-lz4" if older and capable.name in NO_LZ4_IN_THE_OLDER_FORMAT else "every-codec"
    stored = as_stored([record for _ in TOPICS[topic] for record in samples()])
    consumed = capable.consume(filled, topic, PARTITIONS, len(stored))
    assert set(used) == {version}
    assert as_read(consumed, version) == as_read(stored, version)
