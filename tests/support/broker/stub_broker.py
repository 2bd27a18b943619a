"""A broker process that does nothing but register in the supervisor's store.

    python -m tests.support.broker.stub_broker

Its settings tell it to fail: `client.quota.callback.class` names what it does at its start.
"""

import os
import sys
import threading
from pathlib import Path

from penstock.broker.config.broker_config import BrokerConfig
from penstock.broker.config.component_config import store_config
from penstock.broker.supervisor.parent_pipe import (
    PARENT_FD,
    StartResult,
    receive_launch,
    report,
)
from penstock.cluster.factory import open_store
from penstock.controller.metadata import BrokerRecord, Put

BEHAVIOUR = "client.quota.callback.class"


def _follow_supervisor(stop: threading.Event, is_deaf: bool) -> None:
    message = os.read(PARENT_FD, 16)
    if not message:
        os._exit(7)
    if not is_deaf:
        stop.set()


def main() -> None:
    launch = receive_launch()
    behaviour = launch.settings.pop(BEHAVIOUR, "")
    config = BrokerConfig.from_properties(launch.settings)
    if behaviour == f"fail {launch.broker_id}":
        report(StartResult(error="port 1 is in use"))
        sys.exit(1)
    if behaviour == f"crash {launch.broker_id}":
        os._exit(3)
    stop = threading.Event()
    store = open_store(store_config(config))
    store.commit([Put(BrokerRecord(launch.broker_id, (), f"pid {os.getpid()}", 0, {}, 0))])
    report(StartResult([f"stub:{launch.broker_id}"]))
    threading.Thread(
        target=_follow_supervisor,
        args=(stop,),
        kwargs={"is_deaf": behaviour == "deaf"},
        daemon=True,
    ).start()
    stop.wait()
    store.close()
    directory = Path(config.list("log.dirs")[0])
    directory.mkdir(exist_ok=True)
    (directory / "stopped-cleanly").touch()


if __name__ == "__main__":
    main()
