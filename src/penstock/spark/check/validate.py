"""What is wrong with a pipeline, found before Spark starts.

Only what is sure to fail, or to grow without bound, is a problem: whatever cannot be known without
Spark, such as the columns that a Python function makes, passes.
"""

from contextlib import ExitStack

from penstock.core.errors import ErrorCode, KafkaError
from penstock.spark.check.databases import Databases, LiveDatabases, check_tables, table_columns
from penstock.spark.check.part_check import check_parts
from penstock.spark.check.sink_check import check_sinks
from penstock.spark.check.topics import Topics, broker_topics, check_topics
from penstock.spark.check.views import analyse
from penstock.spark.pipeline.model import PipelineSpec, Problem


def validate(
    spec: PipelineSpec, *, topics: Topics | None = None, databases: Databases | None = None
) -> list[Problem]:
    """All problems, in the order of the file; none means that it can be started.

    With `topics` (see `broker_topics`) and `databases` (`LiveDatabases()`) the broker and the
    databases are asked as well.
    """
    tables, problems = table_columns(spec, databases)
    analysis = analyse(spec, tables=tables)
    problems += check_parts(spec)
    problems += analysis.problems
    problems += check_sinks(spec, analysis)
    if topics is not None:
        problems += check_topics(spec, topics)
    if databases is not None:
        problems += check_tables(spec, analysis, databases)
    return sorted(set(problems), key=_place)


def validate_online(spec: PipelineSpec) -> list[Problem]:
    """The same, with the broker and the databases asked, as far as they can be."""
    databases = LiveDatabases()
    with ExitStack() as open_things:
        try:
            topics = open_things.enter_context(broker_topics(spec))
        except (KafkaError, ValueError) as error:
            found = validate(spec, databases=databases)
            key = "bootstrap_servers"
            if isinstance(error, KafkaError) and error.code is ErrorCode.INVALID_CONFIG:
                key = "kafka"
            if any(each.where == f"pipeline.{key}" for each in found):
                return found
            said = error.message if isinstance(error, KafkaError) else str(error)
            said = f"the broker cannot be asked: {said}"
            return [Problem(spec.line_of(key), f"pipeline.{key}", said), *found]
        return validate(spec, topics=topics, databases=databases)


def _place(problem: Problem) -> tuple[int, str, str]:
    return problem.line or 0, problem.where, problem.message
