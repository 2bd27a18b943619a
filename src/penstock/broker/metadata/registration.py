"""The registration of this broker, and the id of its cluster (R6).

Both are decided before the broker serves clients: of brokers that start at the same time, only one
chooses the cluster id, and only one may have an id.
"""

import asyncio
import logging
import secrets
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.features import SUPPORTED_FEATURES, new_cluster_features
from penstock.broker.workers import Workers
from penstock.cluster.store import MetadataStore
from penstock.controller.brokers import register_broker
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import BrokerKey, BrokerRecord, ClusterIdRecord, Endpoint, Put
from penstock.controller.result import ControllerResult
from penstock.core.clock import Clock
from penstock.core.errors import ErrorCode, KafkaError
from penstock.storage.checkpoint.checkpoint_files import (
    CorruptCheckpointError,
    load_meta_properties,
    uuid_text,
)
from penstock.storage.disk import Disk

logger = logging.getLogger(__name__)

_SESSION_PATIENCE_MS: Final = 20_000
"""How long a starting broker waits for the end of the session of another with its id."""
_POLL_S: Final = 0.1


class BrokerRegistration:
    """Registers the broker, when it starts and after its session with the store has expired."""

    def __init__(
        self,
        config: BrokerConfig,
        controller: ControllerHost,
        store: MetadataStore,
        workers: Workers,
        clock: Clock,
    ) -> None:
        self.is_unclean = False
        """Whether the broker may have lost records, and the controller does not know it yet."""
        self._record: BrokerRecord | None = None
        self._config = config
        self._controller = controller
        self._store = store
        self._workers = workers
        self._clock = clock

    async def claim_cluster_id(self, disk: Disk, log_dirs: Sequence[str]) -> bool:
        """Takes the cluster id from the store; returns whether the store had none before.

        It is stored before it is written to the log directories: of brokers that start at the same
        time, only one may choose it.
        """

        def claim(image: ClusterImage) -> ControllerResult[bool]:
            if image.cluster_id:
                return ControllerResult([], False)
            cluster_id = _cluster_id_of(disk, log_dirs) or uuid_text(uuid.uuid4())
            return ControllerResult([Put(ClusterIdRecord(cluster_id))], True)

        return await self._controller.write(claim)

    async def register(self, endpoints: tuple[Endpoint, ...]) -> int:
        """Registers this broker, once a session of an earlier process with its id has ended.

        Returns the broker epoch.
        """
        broker_id = self._config.int("node.id")
        key = BrokerKey(broker_id)
        deadline_ms = self._clock.monotonic_ms() + _SESSION_PATIENCE_MS
        while registered := await self._stored(key):
            if self._clock.monotonic_ms() > deadline_ms:
                raise _duplicate_broker_error(registered)
            await asyncio.sleep(_POLL_S)
        record = BrokerRecord(
            broker_id=broker_id,
            endpoints=endpoints,
            rack=self._config.text("broker.rack"),
            timestamp_ms=self._clock.now_ms(),
            features=SUPPORTED_FEATURES,
            epoch=0,
            is_unclean=self.is_unclean,
            reports_losses=True,
        )
        features = new_cluster_features(
            admits_kafka=self._config.is_set("inter.broker.protocol.version")
        )
        await self._controller.write(
            lambda image: ControllerResult(
                register_broker(
                    image,
                    record,
                    login_secret=secrets.token_bytes(32),
                    features=features,
                ),
                None,
            )
        )
        stored = await self._stored(key)
        if stored is None or stored.timestamp_ms != record.timestamp_ms:
            raise _duplicate_broker_error(stored or record)
        self._record = stored
        return stored.epoch

    async def confirm(self) -> None:
        """Notes that the controller has taken the registration into account.

        From then on it decides about the ISRs by what this broker replicates.
        """
        self.is_unclean = False
        while self._record is not None and self._record.is_unclean:
            record = self._record
            try:
                is_stored = await self._controller.write(partial(self._confirm_stored, record))
            except KafkaError as error:
                logger.warning("the registration could not be confirmed: %s", error.message)
                is_stored = False
            if is_stored and self._record is record:
                self._record = replace(record, is_unclean=False)
            elif not is_stored:
                # The session has ended. The broker registers again in a new one.
                await asyncio.sleep(_POLL_S)

    def _confirm_stored(self, record: BrokerRecord, _image: ClusterImage) -> ControllerResult[bool]:
        """Decides on the store's thread; the result is whether this registration is the last."""
        stored = next(iter(self._store.fetch([record.key])), None)
        if not isinstance(stored, BrokerRecord) or stored.epoch != record.epoch:
            return ControllerResult([], False)
        return ControllerResult([Put(replace(record, is_unclean=False))], True)

    async def _stored(self, key: BrokerKey) -> BrokerRecord | None:
        records = await self._workers.run(self._workers.store, lambda: self._store.fetch([key]))
        return next((record for record in records if isinstance(record, BrokerRecord)), None)


def _duplicate_broker_error(registered: BrokerRecord) -> KafkaError:
    addresses = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in registered.endpoints)
    return KafkaError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"broker {registered.broker_id} is already registered, at {addresses}",
        remedy="stop the other broker with this id, or give this one another node.id",
    )


def _cluster_id_of(disk: Disk, log_dirs: Sequence[str]) -> str | None:
    """Returns the cluster id in the log directories' `meta.properties`, if one has it."""
    for log_dir in log_dirs:
        try:
            properties = load_meta_properties(disk, log_dir)
        except (OSError, CorruptCheckpointError):
            # Opening the directory reports it.
            continue
        if properties is not None and properties.cluster_id is not None:
            return properties.cluster_id
    return None
