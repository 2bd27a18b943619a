"""Objects of Spark's JVM."""

from typing import Any, TypeAlias

JavaObject: TypeAlias = Any
"""py4j gives no types: whatever is asked of one is asked by name, at run time."""
