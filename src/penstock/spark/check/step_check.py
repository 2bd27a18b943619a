"""Whether the functions that steps name exist, found without running any of their code."""

import ast
import importlib.machinery
import sys
from pathlib import Path

from penstock.spark.pipeline.model import PipelineSpec, Problem, StepSpec
from penstock.spark.pipeline.nearest import suggestion


def check_function(spec: PipelineSpec, step: StepSpec) -> list[Problem]:
    """Returns a problem if the step's function certainly does not exist."""
    if not isinstance(step.function, str):
        return []
    message = _function_problem(spec, step.function)
    return [] if message is None else [step.problem("function", message)]


def _function_problem(spec: PipelineSpec, function: str) -> str | None:
    location, colon, name = function.rpartition(":")
    if not colon or not location or not name.isidentifier():
        return (
            f"{function!r} does not name a function: write module:function, or "
            "path/to/file.py:function"
        )
    directory = Path(spec.file).absolute().parent if spec.file else Path.cwd()
    if location.endswith(".py"):
        path = directory / location
        if not path.is_file():
            return f"there is no file {path}"
        return _missing_function(path, name)
    module = _find_module(location, directory)
    return _missing_function(module, name) if isinstance(module, Path) else module


def _find_module(name: str, directory: Path) -> Path | str | None:
    """Returns the module's file, or why it does not exist, or None if it has no source."""
    paths = [*sys.path, str(directory)]
    parts = name.split(".")
    for index, part in enumerate(parts):
        module = importlib.machinery.PathFinder.find_spec(part, paths)
        if module is None:
            if index == 0 and (part in sys.builtin_module_names or part in sys.modules):
                return None
            return (
                f"there is no module {'.'.join(parts[: index + 1])}: install it, or put it next "
                f"to the pipeline's file, in {directory}"
            )
        if index < len(parts) - 1:
            if module.submodule_search_locations is None:
                return f"{'.'.join(parts[: index + 1])} is a module, not a package"
            paths = list(module.submodule_search_locations)
    path = Path(module.origin) if module is not None and module.origin else None
    return path if path is not None and path.suffix == ".py" else None


def _missing_function(path: Path, name: str) -> str | None:
    """Returns why the file has no such function, or None if it has it or may have it."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        return f"{path}, line {error.lineno}: {error.msg}"
    except (OSError, UnicodeDecodeError, ValueError) as error:
        return f"{path} cannot be read: {error}"
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        if isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
            return None
    if name in names:
        return None
    return f"there is no function {name} in {path}{suggestion(name, sorted(names))}"
