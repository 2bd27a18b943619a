"""`penstock pipeline`: pipelines on Spark, from a file (D1 to D5)."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.app import new_group
from penstock.cli.options import argument, flag, option
from penstock.cli.output import Output, fail
from penstock.cli.pipeline_texts import replayed, run_summary, show_status
from penstock.cli.session import AS_JSON, YES, Session, with_errors

if TYPE_CHECKING:
    from penstock.spark.pipeline.model import PipelineSpec, Problem
    from penstock.spark.progress import Progress
    from penstock.spark.watch.run_listener import RunListener

app = new_group("Pipelines on Spark: validate, plan, run, status, rebuild, replay-dlq.")

FILE = argument("FILE", help="The pipeline, such as pipeline.yml.")
SERVER = option(
    "--bootstrap-server", "-b", metavar="HOST:PORT,…", help="Brokers, instead of those in the file."
)
MASTER = option(
    "--master",
    metavar="URL",
    help="Where Spark runs: local[4], spark://…, yarn, k8s://…. Default: this machine.",
)
SINKS = option("--sink", metavar="NAME", help="Only this sink; may be repeated.")


def _command(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Registers a function as a command; errors of pipelines become a line and an exit code."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @app.command(name)
        @wraps(function)
        def run(**values: Any) -> None:
            as_json = values.get("as_json", False)
            with_errors(as_json, lambda: _report_pipeline_errors(as_json, function, values))

        return function

    return register


def _report_pipeline_errors(
    as_json: bool, function: Callable[..., None], values: dict[str, Any]
) -> None:
    from penstock.spark.errors import SparkPartError

    try:
        function(**values)
    except SparkPartError as error:
        name = type(error).__name__.removesuffix("Error")
        fail(str(error), code=name if as_json else "FAILED", as_json=as_json)
    except ModuleNotFoundError as error:
        fail(
            f'{error.name} is missing: pipelines need pip install "penstock[spark]"',
            as_json=as_json,
        )


@_command("validate")
def validate(
    file: Path = FILE,
    bootstrap_server: str | None = SERVER,
    offline: bool = flag("--offline", help="Query neither the broker nor the databases."),
    as_json: bool = AS_JSON,
) -> None:
    """Find problems of a pipeline before Spark starts."""
    spec, problems = _read(file, bootstrap_server)
    if spec is not None:
        problems = problems + _problems(spec, offline=offline)
    _refuse(file, problems, as_json=as_json)
    Output(as_json).done(f"{file}: no problems found", {"problems": []})


@_command("plan")
def plan(file: Path = FILE, bootstrap_server: str | None = SERVER) -> None:
    """Show what would run: queries, views, state, checkpoints, guarantees."""
    from penstock.spark.check.plan import plan as plan_of
    from penstock.spark.run.status import status as status_of

    spec = _checked(file, bootstrap_server)
    partitions: dict[str, int] = {}
    progress: dict[str, Progress] = {}
    for query in status_of(spec).queries:
        for partition in query.partitions:
            topic = partition.partition.topic
            partitions[topic] = max(partitions.get(topic, 0), partition.partition.partition + 1)
        if query.state is not None and query.state.stored is not None:
            progress[query.key] = query.state.stored.progress
    print(plan_of(spec, partitions=partitions, progress=progress), end="")


@_command("run")
def run(
    file: Path = FILE,
    bootstrap_server: str | None = SERVER,
    once: bool = flag("--once", help="Read the records that exist now, then stop."),
    master: str | None = MASTER,
    metrics_port: int | None = option(
        "--metrics-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="The port of metrics for Prometheus; 0 for any free port.",
    ),
    metrics_host: str = option(
        "--metrics-host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="The address of metrics; 0.0.0.0 for access from other machines.",
    ),
    quiet: bool = flag("--quiet", "-q", help="Show no progress."),
    as_json: bool = AS_JSON,
) -> None:
    """Run a pipeline until Ctrl-C; with --once, until all existing records are read."""
    spec = _checked(file, bootstrap_server, as_json=as_json)
    from penstock.spark.run.run import run as run_pipeline
    from penstock.spark.watch.lag import GroupLag
    from penstock.spark.watch.metrics import Metrics
    from penstock.spark.watch.progress_line import ProgressLine

    out = Output(as_json)
    with ExitStack() as watching:
        lag = watching.enter_context(GroupLag(spec.name, spec.client_settings))
        listeners: list[RunListener] = [lag]
        if metrics_port is not None:
            metrics = watching.enter_context(Metrics(spec.name))
            port = metrics.serve(metrics_port, metrics_host)
            out.note(f"metrics: http://{metrics_host}:{port}/metrics")
            listeners.append(metrics)
        if not quiet and not as_json:
            line = ProgressLine()
            watching.callback(line.close)
            listeners.append(line)
        result = run_pipeline(spec, once=once, master=master, listeners=listeners)
    run_summary(out, spec, result)


@_command("status")
def status(
    file: Path = FILE, bootstrap_server: str | None = SERVER, as_json: bool = AS_JSON
) -> None:
    """Show progress, lag, owner and last batch of each query. Needs no Spark."""
    from penstock.spark.run.status import status as status_of

    spec = _loaded(file, bootstrap_server, as_json=as_json)
    show_status(Output(as_json), status_of(spec))


@_command("rebuild")
def rebuild(
    file: Path = FILE,
    bootstrap_server: str | None = SERVER,
    sink: list[str] | None = SINKS,
    master: str | None = MASTER,
    yes: bool = YES,
    as_json: bool = AS_JSON,
) -> None:
    """Remove results, offsets and state, so that the next run recreates the results."""
    from penstock.spark.run.rebuild import rebuild as rebuild_of
    from penstock.spark.run.session import session

    spec = _loaded(file, bootstrap_server, as_json=as_json)
    names = sink or [sink.name for sink in spec.sinks]
    Session(as_json=as_json).confirm(
        f"The results of {', '.join(names)} in pipeline {spec.name} are removed, and made "
        "again from the topics by the next run. Go on?",
        yes=yes,
    )
    spark = session(spec, master, short=True)
    try:
        cleared = rebuild_of(spec, spark, names)
    finally:
        spark.stop()
    Output(as_json).done(
        f"cleared {', '.join(cleared)}: the next `penstock pipeline run {file}` reads "
        "everything again",
        {"cleared": cleared},
    )


@_command("replay-dlq")
def replay_dlq(
    file: Path = FILE,
    bootstrap_server: str | None = SERVER,
    to: str | None = option(
        "--to", metavar="TOPIC", help="Send them to this topic instead of the original ones."
    ),
    limit: int | None = option("--limit", min=1, help="At most this number."),
    dry_run: bool = flag("--dry-run", help="Count them by reason, and send nothing."),
    as_json: bool = AS_JSON,
) -> None:
    """Send dead letters to their topics again, after a fix. Needs no Spark."""
    from penstock.spark.decode.replay import replay

    spec = _loaded(file, bootstrap_server, as_json=as_json)
    replayed(Output(as_json), replay(spec, to=to, limit=limit, dry_run=dry_run))


def _read(file: Path, server: str | None) -> "tuple[PipelineSpec | None, list[Problem]]":
    from penstock.spark.pipeline.yaml_file import PipelineFileError, load

    try:
        spec = load(file)
    except PipelineFileError as error:
        return None, error.problems
    if server is not None:
        spec = replace(spec, bootstrap_servers=server)
    return spec, []


def _problems(spec: "PipelineSpec", *, offline: bool = False) -> "list[Problem]":
    from penstock.spark.check.validate import validate as problems_of
    from penstock.spark.check.validate import validate_online

    return problems_of(spec) if offline else validate_online(spec)


def _loaded(file: Path, server: str | None, *, as_json: bool = False) -> "PipelineSpec":
    """Returns the pipeline of a file; exits if the file is not valid."""
    spec, problems = _read(file, server)
    _refuse(file, problems, as_json=as_json)
    assert spec is not None
    return spec


def _checked(file: Path, server: str | None, *, as_json: bool = False) -> "PipelineSpec":
    """Returns the pipeline; exits if it cannot run."""
    spec = _loaded(file, server, as_json=as_json)
    _refuse(file, _problems(spec), as_json=as_json)
    return spec


def _refuse(file: Path, problems: "list[Problem]", *, as_json: bool) -> None:
    if not problems:
        return
    if as_json:
        listed = [
            {"line": problem.line, "where": problem.where, "message": problem.message}
            for problem in problems
        ]
        Output(as_json).document({"problems": listed})
    else:
        for problem in problems:
            location = file if problem.line is None else f"{file}:{problem.line}"
            print(f"{location}: {problem.where}: {problem.message}")
    fail(f"{len(problems)} problem{'s' * (len(problems) > 1)} in {file}", as_json=as_json)
