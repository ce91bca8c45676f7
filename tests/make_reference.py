"""Writes pages of docs/reference from the sources: `python tests/make_reference.py`.

They are hooks.md, api.md, cluster-view.md, reproduce-keys.md, the tables of results.md and the list of stability.md.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import eunomia
from documents.questions import QUESTIONS
from eunomia import hookspecs
from eunomia_testbed.reproduce.keys import grid_keys
from eunomia_testbed.reproduce.papers import find_paper, own_papers

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
WIDTH = 116
Definition = ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign
HOOKS = """# The hooks

The hooks, in the order in which a round calls them. `tests/make_reference.py` writes this page from
`eunomia.hookspecs`, and a test compares the two. The plugin that the profile names answers a stage; the other hooks
are for observers, and for plugins that bring profiles, tuners and the like. Implementations are marked `@hookimpl`
and may take fewer arguments than the hook has. [Stability](stability.md) lists what does not change; [the public
names](api.md) has the types of arguments and answers.
"""
API = """# The public names

Everything in `eunomia.__all__`, by module. `tests/make_reference.py` writes this page from the sources, and a test
compares the two. Types that a plugin builds take keywords only; `Ints`, `Reals`, `Bools` and `Rows` are numpy arrays
of int64, float64, bool and int32 (rows).

## What authors of policies ask

A stage gets `snapshot`, `menus` and `offer` as arguments. Jobs, apps, users, machines and GPUs are rows of tables, and
a row is a number: `job`, `app` and `gpu` below are rows, `jobs` is an array of rows, and `self` is the plugin. A test
runs each line. `np` is numpy; the other names are of the package `eunomia`.
"""
COLUMNS = """## Columns of a snapshot

`snapshot.users`, `snapshot.apps`, `snapshot.jobs`, `snapshot.ledger.jobs` and `snapshot.ledger.apps` have one array for
each column. Rows that no job, app or user has hold the value that is given here.
"""
TABLES_OF_SNAPSHOT = {
    "eunomia.model.workload": ("Users", "Apps", "Jobs"),
    "eunomia.model.ledger": ("JobLedger", "AppLedger"),
}
"""Classes of columns by module, in the order of the page."""
TABLES_BEGIN, TABLES_END = "## Tables\n", "## Reading it\n"
CLUSTER_VIEW = """# The view of a cluster

A driver, a screen or a script outside of core reads what an arbiter knows through `Arbiter.view`, which is read only:
columns refuse to be written, and no writer of the store takes the view. `eunomia.arbiter` has `Arbiter` and the classes
below; an import contract keeps `eunomia.store`, `eunomia.fold` and `eunomia.round` inside of core. The columns of
users, apps and jobs are [those of a snapshot](api.md#columns-of-a-snapshot), those of GPUs are
[`Holdings`](api.md#holdings).
`tests/make_reference.py` writes this page from the sources, and a test compares the two.

```python
from eunomia.arbiter import Arbiter
from eunomia.contract.events import AppArrived, JobAdded
from eunomia.model.cluster import Cluster
from eunomia.platform.profiles import Profile
from eunomia.units import AppId, JobId, Seconds, UserId

cluster = Cluster.parse("1x4 V100")
stages = Profile.load("fifo").stages(cluster)
arbiter = Arbiter(cluster, stages, Profile.fallback().stages(cluster))
app, job = AppId("a"), JobId("a/1")
arbiter.step(Seconds(0.0), [AppArrived(app=app, user=UserId("ana")), JobAdded(app=app, job=job, least=8, most=8)])

view = arbiter.view
row = view.job_row(job)
print(view.jobs.least[row], view.verdict(row).reason, [lease.gpus for lease in view.leases_of(view.app_row(app))])
```

Columns follow each step. A row may belong to another job or app after the next one: keep ids, not rows.

"""
VIEWS = ("ClusterView", "NamesView", "ReportsView", "AmountsView", "LeaseView", "LastVerdict")
"""Classes of the page of the view, in its order."""
RESULTS = """
Each table starts with `policy` and `seed`. `*_seconds` are float64; times count from the first arrival. Unknown values
are null, never -1. A job is named `app/number`, or by its app alone where the app has one job.
`eunomia_testbed.results.tables` declares each column once, with its unit, what it holds and the figures that
`summary.csv` takes from it: those of `apps` are of the jobs where a run knows no apps, and *time mean* is over the
run's time. `tests/make_reference.py` writes this section from there. Columns that
[plugins add](../how-to/write-a-metric.md) come last, and `columns.json` declares them.
"""
KEYS = """# The keys of `eunomia reproduce --set`

What a reproduction fixes before its first run and `--set KEY=VALUE` changes, by paper. `eunomia reproduce PAPER --help`
shows the same. A duration takes a unit, such as `start=30s`; lists are separated by commas. `--seeds` sets the seeds.
[Measure a paper's claims again](../how-to/reproduce.md) says how runs with other values are read.
`tests/make_reference.py` writes this page from the sources, and a test compares the two.
"""
STABILITY = """# What you can rely on

Hooks with their arguments, and public names with their fields, methods and members: a name on this list is neither
renamed nor removed. Names may be added: arguments of hooks, fields whose default keeps the earlier behaviour, members
of closed sets. A field whose description begins with "Internal" is not on the list. A test compares this list with the
code. A change that breaks it raises the number `api`: a plugin of another `api` than the one served is listed, and not
loaded.

"""


ANSWERED = {
    "eunomia_refine": "answered by each refiner of the profile, in the profile's order",
    "eunomia_explain": "answered by the plugin of each stage of the profile",
}
"""Hooks that more than one plugin answers."""


def hooks_page() -> str:
    """Every hook with its signature, when it is called, arguments and answer."""
    body = _definition("eunomia.hookspecs", "Hooks")
    assert isinstance(body, ast.ClassDef)
    parts = [HOOKS, f"The `api` served is {hookspecs.API}.\n"]
    for hook in body.body:
        if isinstance(hook, ast.FunctionDef):
            one = "answered by one plugin" if hook.name in hookspecs.STAGE_HOOKS else "every plugin that is made"
            asked = ANSWERED.get(hook.name, one)
            parts.append(
                f"## {hook.name}\n\n```python sketch\n{signature(hook)}\n```\n\n({asked})\n\n{_sections(hook)}"
            )
    return "\n".join(parts)


def api_page() -> str:
    """Every public name with its fields or signature."""
    parts = [API, *_questions(), COLUMNS]
    parts += [_entry(module, name) for module, names in TABLES_OF_SNAPSHOT.items() for name in names]
    for module, names in eunomia._MODULES.items():
        parts.append(f"## eunomia.{module}\n")
        parts += [_entry(f"eunomia.{module}", name) for name in sorted(names)]
    return "\n".join(parts)


def view_page() -> str:
    """The view of a cluster, with its members."""
    return CLUSTER_VIEW + "\n".join(_entry("eunomia.round.view", name) for name in VIEWS)


def _questions() -> Iterator[str]:
    """The questions of authors, as a table for each part of a policy."""
    for part, questions in QUESTIONS.items():
        rows = [f"| {question.asked} | `{question.line}` |" for question in questions]
        yield "\n".join([f"### {part}\n", "| question | line |", "|---|---|", *rows, ""])


def stable() -> dict[str, tuple[str, ...]]:
    """Names that third-party plugins depend on: arguments of hooks; fields, methods and members of public names."""
    found = {name: tuple(inspect.signature(spec).parameters)[1:] for name, spec in _hooks().items()}
    for module, names in eunomia._MODULES.items():
        for name in names:
            node = _definition(f"eunomia.{module}", name)
            found[name] = tuple(_members(node)) if isinstance(node, ast.ClassDef | ast.FunctionDef) else ()
    return found


def stability_page(promised: dict[str, tuple[str, ...]]) -> str:
    """The list, including everything promised earlier."""
    now = stable()
    lines = []
    for name in sorted({*promised, *now}):
        before = promised.get(name, ())
        more = [member for member in now.get(name, ()) if member not in before]
        text = f"{name}: {' '.join([*before, *more])}".rstrip()
        lines.append(textwrap.fill(text, WIDTH, subsequent_indent="    ", break_on_hyphens=False))
    return f"{STABILITY}```text\n" + "\n".join(lines) + "\n```\n"


def promised(text: str) -> dict[str, tuple[str, ...]]:
    """Parses the list."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.partition("```text\n")[2].partition("```")[0].replace("\n    ", " ").splitlines():
        name, _, members = line.partition(":")
        found[name] = tuple(members.split())
    return found


def results_page(text: str) -> str:
    """The page of a run's folder with the section of tables as their columns are declared."""
    from eunomia_testbed.results.columns import declared
    from eunomia_testbed.results.tables import TABLES, schema_of

    before, _, rest = text.partition(TABLES_BEGIN)
    after = rest[rest.index(TABLES_END) :]
    lines = [RESULTS]
    for table, row in TABLES.items():
        schema = schema_of(table)
        lines += [f"### {table}\n", f"{row.__doc__}\n".replace("``", "`")]
        lines += ["| column | type | unit | holds | in `summary.csv` |", "|---|---|---|---|---|"]
        for name, spec in declared(row).items():
            figures = ", ".join(f"`{figure.name}` ({figure.aggregate.replace('_', ' ')})" for figure in spec.summary)
            lines.append(f"| `{name}` | {str(schema[name]).lower()} | {spec.unit} | {spec.meaning} | {figures} |")
        lines.append("")
    return before + TABLES_BEGIN + "\n".join(lines) + "\n" + after


def signature(node: ast.FunctionDef) -> str:
    """The signature, on one line, or with one argument on each line."""
    answer = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"def {node.name}({ast.unparse(node.args)}){answer}"
    if len(line) <= WIDTH:
        return line
    known, plain = node.args, [None] * (len(node.args.args) - len(node.args.defaults))
    pairs = list(zip(known.args, [*plain, *known.defaults], strict=True))
    named = list(zip(known.kwonlyargs, known.kw_defaults, strict=True))
    given = [_argument(*pair) for pair in pairs]
    given += [f"*{ast.unparse(known.vararg)}"] if known.vararg else ["*"] if named else []
    given += [_argument(*pair) for pair in named]
    given += [f"**{ast.unparse(known.kwarg)}"] if known.kwarg else []
    return f"def {node.name}(\n" + "".join(f"    {argument},\n" for argument in given) + f"){answer}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + ("" if default is None else f" = {ast.unparse(default)}")


def _hooks() -> dict[str, object]:
    return {name: spec for name, spec in vars(hookspecs.Hooks).items() if name.startswith("eunomia_")}


def _entry(module: str, name: str) -> str:
    node = _definition(module, name)
    if isinstance(node, ast.FunctionDef):
        return f"### {name}\n\n```python sketch\n{signature(node)}\n```\n\n{_sections(node)}"
    if isinstance(node, ast.ClassDef):
        return f"### {name}\n\n{_text(node)}\n```python sketch\n" + "\n".join(_class(node)) + "\n```\n"
    return f"### {name}\n\n```python sketch\n{ast.unparse(node)}\n```\n" + _after(_body(module), node, "\n{}\n")


def _class(node: ast.ClassDef) -> Iterator[str]:
    """A class with its fields and signatures, without the bodies."""
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    yield from (f"@{mark}" for mark in marks)
    yield f"class {node.name}({bases}):" if bases else f"class {node.name}:"
    empty = True
    for item in node.body:
        if isinstance(item, ast.AnnAssign | ast.Assign) and not ast.unparse(item).startswith("_"):
            empty = False
            line = f"    {_field(item)}"
            said = _after(node.body, item, "{}")
            yield f"{line}  # {said}" if said and len(line) + len(said) + 4 <= WIDTH else line
            if said and len(line) + len(said) + 4 > WIDTH:
                yield from textwrap.wrap(said, WIDTH, initial_indent="    # ", subsequent_indent="    # ")
        if isinstance(item, ast.FunctionDef) and _is_public(item):
            empty = False
            yield from (f"    @{ast.unparse(mark)}" for mark in item.decorator_list)
            yield from (f"    {line}" for line in signature(item).splitlines())
            said = (ast.get_docstring(item) or "").split("\n\n")[0].replace("\n", " ")
            if said:
                yield from textwrap.wrap(said, WIDTH, initial_indent="        # ", subsequent_indent="        # ")
    if empty:
        yield "    ..."


def _field(item: ast.AnnAssign | ast.Assign) -> str:
    """A field; of one that only reads a value, its name and type."""
    if isinstance(item, ast.AnnAssign) and isinstance(item.annotation, ast.Subscript):
        kind = item.annotation
        if ast.unparse(kind.value) == "ClassVar" and ast.unparse(item.value or kind).startswith("_read("):
            return f"{ast.unparse(item.target)}: {ast.unparse(kind.slice)}"
    return ast.unparse(item)


def _members(node: ast.ClassDef | ast.FunctionDef) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef):
        yield from (argument.arg for argument in [*node.args.args, *node.args.kwonlyargs])
        return
    for item in node.body:
        if isinstance(item, ast.AnnAssign | ast.Assign):
            target = item.target if isinstance(item, ast.AnnAssign) else item.targets[0]
            internal = _after(node.body, item, "{}").startswith("Internal")
            if isinstance(target, ast.Name) and not target.id.startswith("_") and not internal:
                yield target.id
        elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
            yield from (argument.arg for argument in [*item.args.args[1:], *item.args.kwonlyargs])
        elif isinstance(item, ast.FunctionDef) and _is_public(item):
            yield item.name


def _is_public(node: ast.FunctionDef) -> bool:
    return not node.name.startswith("_") or node.name == "__init__"


def _text(node: ast.ClassDef | ast.FunctionDef) -> str:
    return _blocks(ast.get_docstring(node) or "")


def _sections(node: ast.FunctionDef) -> str:
    return _blocks(ast.get_docstring(node) or "")


def _blocks(text: str) -> str:
    """A docstring as Markdown: arguments and the like as lists."""
    out: list[str] = []
    for block in text.split("\n\n"):
        head, _, rest = block.partition("\n")
        if head in ("Args:", "Attributes:"):
            items = textwrap.dedent(rest).replace("\n    ", " ").splitlines()
            out.append("\n".join(f"- `{item.partition(':')[0]}`:{item.partition(':')[2]}" for item in items))
        elif head in ("Returns:", "Raises:"):
            out.append(f"**{head[:-1]}** " + textwrap.dedent(rest).replace("\n", " "))
        else:
            out.append(block.replace("``", "`"))
    return "\n\n".join(part.replace("``", "`") for part in out) + "\n"


def _after(body: list[ast.stmt], item: ast.stmt, form: str) -> str:
    """The docstring that follows a field or constant."""
    at = body.index(item) + 1
    said = body[at] if at < len(body) else None
    if isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant) and isinstance(said.value.value, str):
        return form.format(" ".join(said.value.value.replace("``", "`").split()))
    return ""


@lru_cache
def _tree(module: str) -> ast.Module:
    beside = Path(str(importlib.import_module(module).__file__))  # of a compiled module, its library
    return ast.parse(beside.with_name(f"{beside.name.split('.')[0]}.py").read_text())


def _body(module: str) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for node in _tree(module).body:
        found += [*node.body, *node.orelse] if isinstance(node, ast.If) else [node]
    return found


def keys_page() -> str:
    """The keys of ``eunomia reproduce --set``, by paper."""
    parts = [KEYS]
    for paper in own_papers():
        parts += [f"\n## {paper}\n\n| key | default | meaning |\n|---|---|---|\n"]
        for key in grid_keys(find_paper(paper).grid):
            parts.append(f"| `{key.name}` | {f'`{key.default}`' if key.default else 'none'} | {key.meaning} |\n")
    return "".join(parts)


def _definition(module: str, name: str) -> Definition:
    for node in _body(module):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and any(getattr(one, "id", "") == name for one in targets):
            return node
    raise LookupError(f"{module} defines no {name}")


def main() -> None:
    (REFERENCE / "hooks.md").write_text(hooks_page())
    (REFERENCE / "api.md").write_text(api_page())
    (REFERENCE / "cluster-view.md").write_text(view_page())
    (REFERENCE / "reproduce-keys.md").write_text(keys_page())
    results = REFERENCE / "results.md"
    results.write_text(results_page(results.read_text()))
    page = REFERENCE / "stability.md"
    page.write_text(stability_page(promised(page.read_text()) if page.exists() else {}))


if __name__ == "__main__":
    main()
