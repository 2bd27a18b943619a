"""Spark masters: checks before Spark starts, and the errors of a master that cannot be used."""

import socket
from collections.abc import Mapping

from penstock.spark.errors import PipelineError

CONNECT_SECONDS = 5.0
"""For each of several masters. Spark would retry for a minute and report less."""

_STOPPED = ("stopped SparkContext", "SparkContext was shut down")


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def check_master(master: str, environment: Mapping[str, str]) -> None:
    """Raises `PipelineError` if Spark is sure not to start with this master."""
    if master.startswith("spark://"):
        _check_reachable(master)
    elif master == "yarn" and not (
        environment.get("HADOOP_CONF_DIR") or environment.get("YARN_CONF_DIR")
    ):
        raise PipelineError(
            "master yarn: set HADOOP_CONF_DIR or YARN_CONF_DIR to the directory with yarn-site.xml "
            "and core-site.xml, which say where the cluster is"
        )


def _check_reachable(master: str) -> None:
    """Raises `PipelineError` if none of the masters can be reached; one is enough."""
    failures: list[str] = []
    for address in master.removeprefix("spark://").split(","):
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise PipelineError(f"master {master}: write spark://host:port, such as spark://a:7077")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS):
                return
        except (OSError, OverflowError) as error:
            failures.append(f"{address} ({error})")
    raise PipelineError(
        f"no Spark master can be reached at {', '.join(failures)}",
        remedy="check that it runs, that its address is the one that its log names (`Starting "
        "Spark master at spark://…`), and that no firewall is in between",
    )


def startup_error(master: str, error: Exception) -> PipelineError:
    """Returns why a session could not start, in one line."""
    if was_stopped(str(error)):
        return PipelineError(
            f"the Spark cluster at {master} gave the application up; its reason is above",
            remedy="check that it runs the same version of Spark as this machine, that its "
            "machines can connect to this one, and what the logs of its workers say",
        )
    return PipelineError(
        f"Spark could not start with master {master}: {_root(error)}",
        remedy="check the address, and that you may start applications there",
    )


def was_stopped(text: str) -> bool:
    """Whether Spark reports that it was stopped. Penstock never stops it while it works."""
    return any(message in text for message in _STOPPED)


def _root(error: Exception) -> str:
    """Returns the first line of the last cause, where Java states the problem."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    raised = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (causes[-1:] or raised[:1] or lines[:1] or [type(error).__name__])[0]
