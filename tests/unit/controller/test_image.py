"""The cluster image: the changes that bring it to the records of a snapshot."""

from penstock.controller.image import ClusterImage
from penstock.controller.metadata import Delete, Put, Record, TopicKey
from penstock.core.ids import TopicPartition
from tests.support.cluster.metadata_changes import config, partition, topic


def image_with(*records: Record) -> ClusterImage:
    image = ClusterImage()
    image.apply([Put(record) for record in records])
    return image


def test_an_image_is_brought_to_the_records_of_a_snapshot() -> None:
    image = image_with(
        topic("a"), partition("a"), topic("b", number=2), config(("users", "x"), a="1")
    )
    changes = image.changes_to([topic("b", number=2), config(("users", "x"), a="2"), topic("c")])
    assert changes == [
        Delete(TopicPartition("a", 0)),
        Delete(TopicKey("a")),
        Put(config(("users", "x"), a="2")),
        Put(topic("c")),
    ]
    image.apply(changes)
    assert image.changes_to([*image.topics.values(), *image.configs.values()]) == []


def test_a_topic_created_again_is_deleted_first() -> None:
    image = image_with(topic("t", number=1), partition("t", epoch=4))
    assert image.changes_to([topic("t", number=2), partition("t")]) == [
        Delete(TopicPartition("t", 0)),
        Delete(TopicKey("t")),
        Put(topic("t", number=2)),
        Put(partition("t")),
    ]
