"""Who may delete a topic, when the broker does not know of it yet (X3)."""

from pathlib import Path

from penstock.core.errors import ErrorCode
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.support.broker.in_process import running_broker
from tests.support.broker.logins import AUTHORIZER, SASL_SETTINGS, logged_in
from tests.support.protocol.requests import make_topic

SETTINGS = {
    **SASL_SETTINGS,
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:admin",
}


def test_a_topic_id_that_only_the_controller_knows_deletes_nothing(tmp_path: Path) -> None:
    """The rights are on the name, which the broker learns after the controller."""
    with (
        running_broker(tmp_path, SETTINGS) as broker,
        logged_in(broker, "admin") as admin,
        logged_in(broker, "ann") as ann,
    ):
        topic_id = make_topic(admin, "new")
        broker.call(lambda running: running.image.topic_names.pop(topic_id))
        request = DeleteTopicsRequest([DeleteTopicState(None, topic_id)], timeout_ms=10_000)
        (result,) = ann.request(request, 6).responses
        assert (result.error_code, result.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
        assert broker.call(lambda running: "new" in running.image.topics)
