"""`validate`: everything that is wrong with a pipeline, found before Spark starts.

Only what is certain to fail, or to grow without bound, is a problem. Whatever only Spark can know,
such as the columns that a Python function makes, passes.
"""

from contextlib import ExitStack

from penstock.core.errors import ErrorCode, KafkaError
from penstock.spark.check.databases import Databases, LiveDatabases, check_tables, table_columns
from penstock.spark.check.sink_check import check_sinks
from penstock.spark.check.spec_check import check_spec
from penstock.spark.check.topics import Topics, broker_topics, check_topics
from penstock.spark.check.views import analyze
from penstock.spark.pipeline.model import PipelineSpec, Problem


def validate(
    spec: PipelineSpec, *, topics: Topics | None = None, databases: Databases | None = None
) -> list[Problem]:
    """Returns all problems, in the order of the file; without any, the pipeline can be started.

    With `topics` (see `broker_topics`) and `databases` (`LiveDatabases()`), topics and tables are
    checked against the broker and the databases.
    """
    tables, problems = table_columns(spec, databases)
    analysis = analyze(spec, tables=tables)
    problems += check_spec(spec)
    problems += analysis.problems
    problems += check_sinks(spec, analysis)
    if topics is not None:
        problems += check_topics(spec, topics)
    if databases is not None:
        problems += check_tables(spec, analysis, databases)
    return sorted(set(problems), key=lambda p: (p.line or 0, p.where, p.message))


def validate_online(spec: PipelineSpec) -> list[Problem]:
    """Returns the problems of `validate`, using the broker and the databases if they respond."""
    databases = LiveDatabases()
    with ExitStack() as stack:
        try:
            topics = stack.enter_context(broker_topics(spec))
        except (KafkaError, ValueError) as error:
            problems = validate(spec, databases=databases)
            key = "bootstrap_servers"
            if isinstance(error, KafkaError) and error.code is ErrorCode.INVALID_CONFIG:
                key = "kafka"
            if any(problem.where == f"pipeline.{key}" for problem in problems):
                return problems
            reason = error.message if isinstance(error, KafkaError) else str(error)
            message = f"the broker cannot be reached: {reason}"
            return [spec.problem(key, message), *problems]
        return validate(spec, topics=topics, databases=databases)
