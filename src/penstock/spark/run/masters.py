"""Where Spark runs: what can be said of a master before Spark starts, and when it does not."""

import socket
from collections.abc import Mapping

from penstock.spark.errors import PipelineError

CONNECT_SECONDS = 5.0
"""For each of several masters. Spark itself would try for a minute, and then say little."""

_STOPPED = ("stopped SparkContext", "SparkContext was shut down")


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def check_master(master: str, environment: Mapping[str, str]) -> None:
    """`PipelineError` where Spark is sure not to start there. All else is left to Spark."""
    if master.startswith("spark://"):
        _check_reachable(master)
    elif master == "yarn" and not (
        environment.get("HADOOP_CONF_DIR") or environment.get("YARN_CONF_DIR")
    ):
        raise PipelineError(
            "master yarn: set HADOOP_CONF_DIR or YARN_CONF_DIR to the folder with yarn-site.xml "
            "and core-site.xml, which say where the cluster is"
        )


def _check_reachable(master: str) -> None:
    """One of them is enough: the others may be in reserve."""
    failures: list[str] = []
    for part in master.removeprefix("spark://").split(","):
        host, colon, port = part.rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise PipelineError(f"master {master}: write spark://host:port, such as spark://a:7077")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
                return
        except (OSError, OverflowError) as error:
            failures.append(f"{part} ({error})")
    raise PipelineError(
        f"no Spark master can be reached at {', '.join(failures)}. Check that it runs, that "
        "its address is the one that its log names (`Starting Spark master at spark://…`), "
        "and that no firewall is in between"
    )


def startup_error(master: str, error: Exception) -> PipelineError:
    """What kept a session from starting, on one line."""
    if was_stopped(str(error)):
        return PipelineError(
            f"the Spark cluster at {master} gave the application up; its reason is above. Check "
            "that it runs the same version of Spark as this machine, that its machines can "
            "connect to this one, and what the logs of its workers say"
        )
    return PipelineError(
        f"Spark could not start with master {master}: {_root(error)}. Check the address, and that "
        "you may start applications there"
    )


def was_stopped(text: str) -> bool:
    """Whether Spark says that it was stopped, which we never do while it is at work."""
    return any(each in text for each in _STOPPED)


def _root(error: Exception) -> str:
    """The first line of the last cause, which is where Java says what it is about."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    raised = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (causes[-1:] or raised[:1] or lines[:1] or [type(error).__name__])[0]
