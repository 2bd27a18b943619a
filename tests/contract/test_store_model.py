"""Random changes, restarts and crashes: the store, a model and every image agree."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from penstock.cluster.store import MetadataStore, StoreConflictError
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    DEFAULT_ENTITY,
    Assignment,
    Change,
    ClusterIdRecord,
    ClusterKey,
    ControllerEpochRecord,
    ControllerRecord,
    Delete,
    FeaturesRecord,
    Key,
    PartitionRecord,
    ProducerIdsRecord,
    Put,
    Record,
    TopicKey,
    TopicRecord,
)
from penstock.core.ids import TopicPartition
from tests.contract.homes import HOMES, StoreHome
from tests.support.cluster.metadata_changes import StoreModel, acl, broker, config, image_of

TOPICS = st.sampled_from(["a", "a.b"])
ENTITIES = st.sampled_from(
    [
        (("topics", "a"),),
        (("brokers", DEFAULT_ENTITY),),
        (("users", "CN=x/é *"),),
        (("users", "CN=x/é *"), ("clients", DEFAULT_ENTITY)),
        (("groups", "g"),),
    ]
)
VALUES = st.dictionaries(st.text(max_size=3), st.text(max_size=5), min_size=1, max_size=3)
SMALL = st.integers(0, 3)
BROKER_IDS = st.lists(SMALL, min_size=1, max_size=3, unique=True).map(tuple)
OPERATIONS = st.sampled_from(["READ", "DESCRIBE_CONFIGS"])
PATTERNS = st.sampled_from(["LITERAL", "PREFIXED"])

ANY_RECORD: st.SearchStrategy[Record] = st.one_of(
    st.builds(ClusterIdRecord, st.sampled_from(["x", "y"])),
    st.builds(ControllerRecord, SMALL, SMALL),
    st.builds(ControllerEpochRecord, SMALL),
    st.builds(FeaturesRecord, st.dictionaries(st.text(max_size=3), SMALL, max_size=2), SMALL),
    st.builds(ProducerIdsRecord, SMALL, SMALL, SMALL),
    st.builds(broker, SMALL, st.none() | st.text(max_size=3)),
    st.builds(lambda entity, values: config(*entity, **values), ENTITIES, VALUES),
    st.builds(acl, st.sampled_from(["*", "x/y"]), PATTERNS, OPERATIONS),
)
ANY_PARTITION = st.builds(
    PartitionRecord, TOPICS, st.integers(0, 1), SMALL, SMALL, BROKER_IDS, SMALL, SMALL
)
DELETABLE = st.one_of(
    TOPICS.map(TopicKey),
    st.builds(TopicPartition, TOPICS, st.integers(0, 1)),
    ANY_RECORD.map(lambda record: record.key).filter(
        lambda key: not isinstance(key, ClusterKey) or key.name == "controller"
    ),
)


class StoreMachine(RuleBasedStateMachine):
    """`kind` is the name of the store; its homes are created in `directory`."""

    kind: str
    directory: Path

    @initialize()
    def begin(self) -> None:
        self.home: StoreHome = HOMES[self.kind](
            Path(tempfile.mkdtemp(dir=self.directory)) / "store"
        )
        self.store: MetadataStore = self.home.open()
        self.model = StoreModel()
        self.image = ClusterImage()
        self.topic_ids: dict[str, UUID] = {}
        self.topics_made = 0
        self.last_transaction = -1

    @rule(data=st.data(), count=st.integers(1, 4))
    def commit(self, data: st.DataObject, count: int) -> None:
        changes = [self._change(data) for _ in range(count)]
        try:
            transaction = self.store.commit(changes)
        except StoreConflictError:
            with pytest.raises(StoreConflictError):
                self.model.commit(changes, -1)
        else:
            assert transaction > self.last_transaction
            self.last_transaction = transaction
            self.image.apply(self.model.commit(changes, transaction))
            self.topic_ids = {
                name: topic_id
                for name, topic_id in self.topic_ids.items()
                if TopicKey(name) in self.model.records
            }

    @rule(name=TOPICS, replicas=BROKER_IDS)
    def create_topic(self, name: str, replicas: tuple[int, ...]) -> None:
        """The usual way, so that there is something to change."""
        if TopicKey(name) not in self.model.records:
            topic = self._topic(name, replicas)
            states = [PartitionRecord(name, n, replicas[0], 0, replicas, 1, 0) for n in (0, 1)]
            changes: list[Change] = [Put(topic), *map(Put, states)]
            self.last_transaction = self.store.commit(changes)
            assert self.model.commit(changes, self.last_transaction) == changes
            self.image.apply(changes)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self._begin_session()

    @rule()
    def crash(self) -> None:
        self.home.crash(self.store)
        self._begin_session()

    @invariant()
    def agrees(self) -> None:
        records = self.store.load().records
        assert len(records) == len(self.model.records)
        assert {record.key: record for record in records} == self.model.records
        assert image_of(records) == vars(self.image)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.home.close()

    def _begin_session(self) -> None:
        self.image.apply(self.model.end_session())
        self.store = self.home.open()

    def _change(self, data: st.DataObject) -> Change:
        match data.draw(st.sampled_from(["any", "delete", "known", "next", "next", "topic"])):
            case "any":
                return Put(data.draw(ANY_RECORD | ANY_PARTITION))
            case "delete":
                return Delete(data.draw(DELETABLE))
            case "known" if keys := self._keys(lambda key: not isinstance(key, ClusterKey)):
                return Delete(data.draw(st.sampled_from(keys)))
            case "next" if keys := self._keys(lambda key: isinstance(key, TopicPartition)):
                record = self.model.records[data.draw(st.sampled_from(keys))]
                assert isinstance(record, PartitionRecord)
                isr, epoch = data.draw(BROKER_IDS), record.partition_epoch + 1
                name, number = record.key
                return Put(PartitionRecord(name, number, isr[0], epoch, isr, 1, epoch))
        return Put(self._topic(data.draw(TOPICS), data.draw(BROKER_IDS)))

    def _keys(self, is_match: Callable[[Key], bool]) -> list[Key]:
        return [key for key in self.model.records if is_match(key)]

    def _topic(self, name: str, replicas: tuple[int, ...]) -> TopicRecord:
        """A topic keeps its id until it is deleted; created again, it has another one."""
        if name not in self.topic_ids:
            self.topics_made += 1
            self.topic_ids[name] = UUID(int=self.topics_made)
        topic_id = self.topic_ids[name]
        assignment = Assignment(replicas, adding=replicas[1:], removing=replicas[:1])
        return TopicRecord(name, topic_id, {0: assignment, 1: Assignment(replicas)})


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.long if kind == "zookeeper" else ())
        for kind in sorted(HOMES)
    ],
)
def test_a_store_does_what_the_model_says(kind: str, tmp_path: Path) -> None:
    """S7: nothing that was committed is lost, whatever order of changes, restarts and crashes."""
    machine = type("Machine", (StoreMachine,), {"kind": kind, "directory": tmp_path})
    examples = 10 if kind == "zookeeper" else 60
    run_machine(
        machine, settings=settings(max_examples=examples, stateful_step_count=25, deadline=None)
    )
