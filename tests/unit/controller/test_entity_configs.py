"""Quotas, credentials, access rules and producer ids."""

import pytest

from penstock.controller.acls import create_acls, delete_acls
from penstock.controller.entity_configs import update_configs
from penstock.controller.image import ClusterImage
from penstock.controller.metadata import (
    AccessControlEntry,
    AclKey,
    Change,
    ProducerIdsRecord,
    Put,
)
from penstock.controller.producer_ids import allocate_producer_ids, next_block
from penstock.controller.quotas import alter_quotas
from penstock.controller.scram import alter_scram_credentials
from penstock.core.errors import ErrorCode, KafkaError
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tests.support.cluster.images import check_committable, image_of

ANN = (("users", "ann"),)
ANN_X = (("users", "ann"), ("clients", "x"))


def apply(image: ClusterImage, changes: list[Change]) -> int:
    check_committable(changes)
    image.apply(changes)
    return len(changes)


def test_quotas_are_replaced() -> None:
    """X4"""
    image = ClusterImage()
    limits = {ANN: {"producer_byte_rate": "10"}, ANN_X: {"request_percentage": "5.0"}}
    assert apply(image, alter_quotas(image, limits)) == 2
    assert image.config("users", "ann") == {"producer_byte_rate": "10"}
    assert apply(image, alter_quotas(image, limits)) == 0
    assert apply(image, alter_quotas(image, {ANN: {}})) == 1
    assert [key.entity for key in image.configs] == [ANN_X]
    assert apply(image, alter_quotas(image, {ANN: {}})) == 0


def test_credentials_live_beside_quotas() -> None:
    """X2, X4"""
    image = ClusterImage()
    apply(image, alter_quotas(image, {ANN: {"producer_byte_rate": "10"}}))
    both = [("ann", "SCRAM-SHA-256", "s=1"), ("ann", "SCRAM-SHA-512", "s=2")]
    assert apply(image, alter_scram_credentials(image, both)) == 1
    assert len(image.config("users", "ann")) == 3
    removed = [("ann", "SCRAM-SHA-256", None), ("bob", "SCRAM-SHA-256", None)]
    assert apply(image, alter_scram_credentials(image, removed)) == 1
    assert image.config("users", "ann") == {"producer_byte_rate": "10", "SCRAM-SHA-512": "s=2"}


def test_an_entity_several_times_is_one_change() -> None:
    image = ClusterImage()
    apply(image, update_configs(image, [(ANN, {"a": "1"}), (ANN, {"b": "2"})]))
    assert image.config("users", "ann") == {"a": "1", "b": "2"}
    assert apply(image, update_configs(image, [(ANN, {"a": None}), (ANN, {"a": "1"})])) == 0
    assert apply(image, update_configs(image, [(ANN, {"a": None, "b": None})])) == 1
    assert not image.configs


def test_acls() -> None:
    """X3"""
    image = ClusterImage()
    key = AclKey("TOPIC", "LITERAL", "t")
    read = AccessControlEntry("User:ann", "*", "READ", "ALLOW")
    write = AccessControlEntry("User:ann", "*", "WRITE", "ALLOW")
    group_key = AclKey("GROUP", "PREFIXED", "g")
    assert apply(image, create_acls(image, [(key, read), (key, write), (group_key, read)])) == 2
    assert image.acls[key].entries == {read, write}
    assert apply(image, create_acls(image, [(key, read)])) == 0
    assert apply(image, delete_acls(image, [(key, read), (key, read)])) == 1
    assert image.acls[key].entries == {write}
    assert apply(image, delete_acls(image, [(key, read)])) == 0
    assert apply(image, delete_acls(image, [(key, write), (group_key, read)])) == 2
    assert not image.acls


def test_producer_ids_are_never_allocated_twice() -> None:
    """P3"""
    image = image_of(0)
    changes, first, _ = next_block(image, 0)
    apply(image, changes)
    assert first == ProducerIdsRecord(0, 0, 999)
    changes, second, _ = next_block(image, 0)
    apply(image, changes)
    assert second == ProducerIdsRecord(0, 1000, 1999)


def test_producer_ids_for_a_broker() -> None:
    image = image_of(0, 1)
    changes, response, _ = allocate_producer_ids(image, AllocateProducerIdsRequest(1, 1))
    assert apply(image, changes) == 1
    assert (response.producer_id_start, response.producer_id_len) == (0, 1000)
    for broker_id, epoch, code in (
        (1, 2, ErrorCode.STALE_BROKER_EPOCH),
        (9, 1, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ):
        changes, response, _ = allocate_producer_ids(
            image, AllocateProducerIdsRequest(broker_id, epoch)
        )
        assert changes == []
        assert response.error_code == code


def test_producer_ids_run_out() -> None:
    image = image_of(0)
    image.apply([Put(ProducerIdsRecord(0, 0, 2**63 - 2))])
    with pytest.raises(KafkaError) as caught:
        next_block(image, 0)
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
