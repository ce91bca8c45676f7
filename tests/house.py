"""Figures of the product's source: long functions, wide signatures, long modules, shared class names, import cycles.

`python tests/house.py` prints them; `tests/test_house.py` asserts their limits. Generated protocol code is left out.
"""

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parent.parent
FLOORS = ("core", "solvers", "plugins", "appmaster", "engines", "hpo_adapters", "testbed", "market")
LINES_OF_A_FUNCTION = 60
PARAMETERS = 8
LINES_OF_A_MODULE = 500
PACKAGES_WITH_ONE_CLASS_NAME = 2

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def source_files() -> list[Path]:
    """Every Python file of the packages, as paths relative to the root."""
    found = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]
    return sorted(path.relative_to(ROOT) for path in found if "_pb2" not in path.name)


@cache
def trees() -> dict[Path, ast.Module]:
    """The syntax tree of every source file."""
    return {path: ast.parse((ROOT / path).read_text()) for path in source_files()}


def long_modules() -> set[str]:
    """Files of more than 500 lines."""
    counts = {path: (ROOT / path).read_text().count("\n") for path in source_files()}
    return {str(path) for path, lines in counts.items() if lines > LINES_OF_A_MODULE}


def long_functions() -> set[str]:
    """Functions of more than 60 lines, from `def` to the last line; decorators are not counted."""
    return {name for name, node, _ in _functions() if _lines(node) > LINES_OF_A_FUNCTION}


def wide_functions() -> set[str]:
    """Functions with more than 8 named parameters; the `self` or `cls` of a method is not counted."""
    return {name for name, node, in_class in _functions() if _parameters(node, in_class) > PARAMETERS}


def shared_class_names() -> set[str]:
    """Public class names that more than two packages (folders) define."""
    packages = defaultdict(set)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                packages[node.name].add(path.parent)
    return {name for name, folders in packages.items() if len(folders) > PACKAGES_WITH_ONE_CLASS_NAME}


def modules_in_cycles() -> set[str]:
    """Modules that stand on a cycle of the import graph.

    Imports inside functions and under `TYPE_CHECKING` count as edges. The `__init__` modules of packages are left out.
    """
    graph = _import_graph()
    return {module for component in _components(graph) if len(component) > 1 for module in component}


FIGURES: dict[str, Callable[[], set[str]]] = {
    f"functions over {LINES_OF_A_FUNCTION} lines": long_functions,
    f"functions over {PARAMETERS} parameters": wide_functions,
    f"modules over {LINES_OF_A_MODULE} lines": long_modules,
    f"class names in more than {PACKAGES_WITH_ONE_CLASS_NAME} packages": shared_class_names,
    "modules in import cycles": modules_in_cycles,
}


def _functions() -> Iterator[tuple[str, Function, bool]]:
    """Each function's `file:qualified.name`, its node, and whether it is a method with a `self` or `cls`."""
    for path, tree in trees().items():
        for scope, node, in_class in _functions_under(tree, (), in_class=False):
            yield f"{path}:{'.'.join(scope)}", node, in_class


def _functions_under(
    node: ast.AST, scope: tuple[str, ...], *, in_class: bool
) -> Iterator[tuple[tuple[str, ...], Function, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (*scope, child.name)
            yield inner, child, in_class and not _is_static(child)
            yield from _functions_under(child, inner, in_class=False)
        elif isinstance(child, ast.ClassDef):
            yield from _functions_under(child, (*scope, child.name), in_class=True)
        else:
            yield from _functions_under(child, scope, in_class=in_class)


def _is_static(node: Function) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in node.decorator_list)


def _lines(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _parameters(node: Function, in_class: bool) -> int:
    arguments = node.args
    return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - in_class


def _import_graph() -> dict[str, set[str]]:
    named = {_module_name(path): (path, tree) for path, tree in trees().items()}
    inits = {name for name, (path, _) in named.items() if path.name == "__init__.py"}
    modules = {name: pair for name, pair in named.items() if name not in inits}
    return {
        name: {target for target in _imported(name, tree) if target in modules and target != name}
        for name, (_, tree) in modules.items()
    }


def _module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")


def _imported(module: str, tree: ast.Module) -> Iterator[str]:
    """Every dotted name that an import statement anywhere in the module may load."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*package, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _components(graph: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components (modules that reach each other)."""
    reach = {module: _reachable(graph, module) for module in graph}
    components, seen = [], set[str]()
    for module in graph:
        if module not in seen:
            component = {other for other in reach[module] if module in reach[other]} | {module}
            components.append(component)
            seen |= component
    return components


def _reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found, waiting = set[str](), [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    return found


def main() -> None:
    """Print every figure, and the names behind each that is not zero."""
    for title, measure in FIGURES.items():
        names = sorted(measure())
        print("\n  ".join([f"{title}: {len(names)}", *names]))


if __name__ == "__main__":
    main()
