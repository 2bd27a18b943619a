"""Whether functions that steps name are there, found without running any of their code."""

import ast
import importlib.machinery
import sys
from pathlib import Path

from penstock.spark.pipeline.model import PipelineSpec, Problem, StepSpec
from penstock.spark.pipeline.nearest import suggestion


def check_function(spec: PipelineSpec, step: StepSpec) -> list[Problem]:
    """Nothing, if it is there or cannot be told."""
    where = f"steps.{step.name}.function"
    line = step.line_of("function")
    if not isinstance(step.function, str):
        return []
    place, colon, name = step.function.rpartition(":")
    if not colon or not place or not name.isidentifier():
        message = (
            f"{step.function!r} does not name a function: write module:function, or "
            "path/to/file.py:function"
        )
        return [Problem(line, where, message)]
    folder = Path(spec.file).absolute().parent if spec.file else Path.cwd()
    if place.endswith(".py"):
        path: Path | None = folder / place
        if path is None or not path.is_file():
            return [Problem(line, where, f"there is no file {path}")]
    else:
        found = _module(place, folder)
        if isinstance(found, str):
            return [Problem(line, where, found)]
        path = found
    if path is None:
        return []
    message_of = _missing(path, name)
    return [] if message_of is None else [Problem(line, where, message_of)]


def _module(name: str, folder: Path) -> Path | str | None:
    """Its file; why it is not there; or None if it has no source."""
    paths = [*sys.path, str(folder)]
    parts = name.split(".")
    for at, part in enumerate(parts):
        found = importlib.machinery.PathFinder.find_spec(part, paths)
        if found is None:
            if at == 0 and (part in sys.builtin_module_names or part in sys.modules):
                return None
            return (
                f"there is no module {'.'.join(parts[: at + 1])}: install it, or put it next to "
                f"the pipeline's file, in {folder}"
            )
        if at < len(parts) - 1:
            if found.submodule_search_locations is None:
                return f"{'.'.join(parts[: at + 1])} is a module, not a package"
            paths = list(found.submodule_search_locations)
    path = Path(found.origin) if found is not None and found.origin else None
    return path if path is not None and path.suffix == ".py" else None


def _missing(path: Path, name: str) -> str | None:
    """Why the function is not in the file."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        return f"{path}, line {error.lineno}: {error.msg}"
    except (OSError, UnicodeDecodeError, ValueError) as error:
        return f"{path} cannot be read: {error}"
    names: set[str] = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and any(one.name == "*" for one in each.names):
            return None
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(each.name)
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            names.add(each.id)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            names |= {(one.asname or one.name).split(".")[0] for one in each.names}
        if isinstance(each, ast.FunctionDef) and each.name == "__getattr__":
            return None
    if name in names:
        return None
    return f"there is no function {name} in {path}{suggestion(name, sorted(names))}"
