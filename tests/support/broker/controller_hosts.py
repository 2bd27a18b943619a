"""Controller hosts without a broker: their updates go to the image of the host's own broker."""

from collections.abc import Mapping, Sequence

from penstock.broker.metadata.active_controller import ActiveController
from penstock.broker.metadata.broker_metadata import BrokerMetadata
from penstock.broker.metadata.controller_channel import ResultListener
from penstock.broker.metadata.controller_host import ControllerHost
from penstock.broker.metadata.controller_requests import UpdateResult
from penstock.broker.pacer import Pacer
from penstock.broker.workers import Workers
from penstock.cluster.store import MetadataStore
from penstock.controller.broker_updates import BrokerUpdate, OfflineReplicas, metadata_changes
from penstock.controller.brokers import claim_controller
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import BrokerRecord, Change, Put
from penstock.controller.partition_state_machine import ElectionRules
from penstock.controller.result import ControllerResult
from penstock.core.errors import ErrorCode
from tests.support.cluster.metadata_changes import broker


class SentRequests:
    """Channels that keep what is sent to other brokers."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, BrokerUpdate]] = []
        self.is_closed = False

    def prepare(self, updates: Mapping[int, BrokerUpdate]) -> None: ...

    def send(self, broker: BrokerRecord, update: BrokerUpdate) -> None:
        self.sent.append((broker.broker_id, update))

    def remove(self, broker_id: int) -> None: ...

    async def close(self) -> None:
        self.is_closed = True


class LocalContext:
    """The context of a controller whose broker has an image and nothing else."""

    is_starting = True
    is_deletion_enabled = True

    def __init__(self, broker_id: int, metadata: BrokerMetadata) -> None:
        self.broker_id = broker_id
        self.channels = SentRequests()
        self._metadata = metadata

    def rules(self, image: ClusterImage) -> ElectionRules:
        return ElectionRules(lambda _topic: False)

    def open_channels(
        self, image: ClusterImage, on_result: ResultListener, offline_replicas: OfflineReplicas
    ) -> SentRequests:
        self.channels = SentRequests()
        return self.channels

    async def apply_update(self, update: BrokerUpdate) -> UpdateResult:
        await self._metadata.publish(metadata_changes(self._metadata.image, update))
        return UpdateResult({}, {stop.key: ErrorCode.NONE for stop in update.stops})


class HostOfTests(ControllerHost):
    """A host that keeps the lists that it published to its broker."""

    def __init__(self, store: MetadataStore, workers: Workers, broker_id: int = 0) -> None:
        self.metadata = BrokerMetadata(ClusterImage(), Pacer())
        self.context = LocalContext(broker_id, self.metadata)
        self.broker_id = broker_id
        self.published: list[list[Change]] = []
        super().__init__(
            self.metadata,
            store,
            workers,
            lambda image, version: ActiveController(self.context, workers, image, version),
            lambda image: claim_controller(image, broker_id, 1),
        )

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    async def become_controller(self) -> None:
        """Registers the broker and becomes the controller; then begins to keep what it
        publishes."""
        await self.write(lambda _image: ControllerResult([Put(broker(self.broker_id))], None))
        await self.elect()
        assert self.is_active
        self.metadata.listeners.append(self._keep)

    def _keep(self, changes: Sequence[Change]) -> None:
        self.published.append(list(changes))
