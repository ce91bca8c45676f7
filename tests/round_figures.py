"""Figures of the core's rounds that depend on the code alone: calls, functions, modules, lines, stores and writers.

``python tests/round_figures.py`` prints them, and the functions of the median FIFO round. Limits are those of
``tests/test_round_figures.py``. Calls are counted with ``sys.setprofile`` in simulations of generated jobs, so that a
figure is the same on every machine. Functions, modules and lines are those of Eunomia; a comprehension counts with the
function around it. A round's calls are those of Python functions of any package; calls of a job and of a contended
step, which include the simulator's own, are those of functions in C as well.
"""

import ast
import contextlib
import dataclasses
import gc
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import numpy as np

from assembling import assemble
from eunomia.arbiter import Arbiter
from eunomia.cli import run
from eunomia.contract.decisions import Decision, TransitionKind
from eunomia.contract.events import AppArrived, Event, JobAdded, SingleJobArrived
from eunomia.contract.stages import Rounds
from eunomia.model.cluster import Cluster
from eunomia.model.columns import Table
from eunomia.model.workload import JobState
from eunomia.platform.registry import default_registry
from eunomia.units import AppId, JobId, Seconds, UserId
from eunomia_testbed.simulator.engine import Engine

ROOT: Final = Path(__file__).resolve().parent.parent
FLOOR_NAMES: Final = ("core", "solvers", "plugins", "appmaster", "hpo_adapters", "testbed")
FLOORS: Final = tuple(f"{ROOT / floor}/" for floor in FLOOR_NAMES)
CLASSES_IN: Final = ("core/eunomia", "testbed/eunomia_testbed/simulator")
FIFO: Final = "--workload gavel --set gavel.jobs=150 --set gavel.interarrival=200s --cluster 8x8+V100 --policy fifo"
THEMIS: Final = "--workload themis1 --set themis1.apps=4 --cluster 3x4+V100 --until 4d --policy themis"
JOBS: Final = 600
MANY_JOBS: Final = (
    f"--workload gavel --set gavel.jobs={JOBS} --set gavel.interarrival=100s --cluster 400x8+V100 --policy fifo"
)
CONTENDED: Final = (
    "--workload gavel --set gavel.jobs=1500 --set gavel.interarrival=5s --cluster 187x8+V100,1x4+V100 "
    "--until 2h --policy srtf"
)
CONTENDED_STEPS: Final = 300
FEW: Final = 5
"""Waiting jobs up to which a step is not contended."""


# --- what a round enters -----------------------------------------------------------------------------------------


class Round(NamedTuple):
    """A traced step: how often each function of Eunomia was called, and all calls of Python functions."""

    functions: Counter[CodeType]
    calls: int

    @property
    def modules(self) -> set[str]:
        return {code.co_filename for code in self.functions}

    @property
    def lines(self) -> int:
        """Lines of the functions entered, from ``def`` to the last line with code."""
        return sum(map(lines_of, self.functions))


def lines_of(code: CodeType) -> int:
    return max(line for _, _, line in code.co_lines() if line is not None) - code.co_firstlineno + 1


def is_own(code: CodeType) -> bool:
    return code.co_filename.startswith(FLOORS) and code.co_name[0] != "<"


@contextlib.contextmanager
def patched(owner: type, name: str, method: Callable[..., Any]) -> Iterator[None]:
    """Replaces a method of a class for as long as the block lasts."""
    before = getattr(owner, name)
    setattr(owner, name, method)
    try:
        yield
    finally:
        setattr(owner, name, before)


def simulate(arguments: str) -> None:
    """Runs a simulation in this process.

    Raises:
        SystemExit: it failed.
    """
    words = [word.replace("+", " ") for word in arguments.split()]
    with tempfile.TemporaryDirectory() as folder:
        more = ["--out", f"{folder}/out", "--no-report", "--no-progress", "-q", "-j", "1"]
        if run(["simulate", *words, *more]) != 0:
            raise SystemExit(f"the simulation failed: {arguments}")


def rounds(arguments: str, *, wanted: Callable[[Decision], bool]) -> list[Round]:
    """Traces the steps of a simulation whose decision is wanted."""
    found: list[Round] = []
    step = Arbiter.step

    def watched(self: Arbiter, now: Seconds, events: Iterable[Event] = ()) -> Decision:
        seen: Counter[CodeType] = Counter()

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call":
                seen[frame.f_code] += 1

        gc.disable()  # finalizers of what other tests left would count
        sys.setprofile(note)
        try:
            decision = step(self, now, events)
        finally:
            sys.setprofile(None)
            gc.enable()
        if wanted(decision):
            own = Counter({code: calls for code, calls in seen.items() if is_own(code)})
            found.append(Round(own, sum(calls for code, calls in seen.items() if code.co_name[0] != "<")))
        return decision

    with patched(Arbiter, "step", watched):
        simulate(arguments)
    return found


def one_start(decision: Decision) -> bool:
    return [order.kind for order in decision.transitions] == [TransitionKind.START] and not decision.orders


def moves(decision: Decision) -> bool:
    return bool(decision.transitions)


def round_figures(found: list[Round]) -> dict[str, float]:
    """Medians over rounds."""
    return {
        "functions": statistics.median(len(one.functions) for one in found),
        "modules": statistics.median(len(one.modules) for one in found),
        "calls": statistics.median(one.calls for one in found),
        "lines": statistics.median(one.lines for one in found),
    }


ROLES: Final = {
    "step": {
        "fold/adopt.py": {"adopt"},
        "fold/fold.py": {"fold"},
        "fold/fold_gpus.py": {"single_job_ended", "started"},
        "round/arbiter.py": {"Arbiter.step", "Arbiter._is_quiet", "Arbiter._decided"},
        "round/plan.py": {
            "check_allocation",
            "starts",
            "_is_even",
            "_terms",
        },
        "round/round.py": {"Round.__init__", "Round.run", "Round.ask", "Round._outcome"},
        "round/show.py": {"show", "make_offer"},
        "round/timing.py": {"Timing.due"},
        "round/verdict_changes.py": {"verdicts_of"},
    },
    "policy": {
        "allocations/gangs.py": {"serve"},
        "allocations/ordered.py": {"Ordered.eunomia_allocation"},
        "elasticity/fixed.py": {"Fixed.eunomia_elasticity"},
        "orders/fifo.py": {"Fifo.eunomia_valuation"},
        "placement/packed.py": {"Packed.eunomia_placement", "place_on_free", "_choose", "_in_one_rack"},
    },
    "writer": {
        "store/writers.py": {
            "cause",
            "close_app",
            "count",
            "drop_app",
            "drop_job",
            "drop_lease",
            "grant",
            "move",
            "release",
            "run",
        },
    },
}
"""The functions of a FIFO round that decide, are the policy's, or write; what is not listed keeps the store up to date:
it is upkeep."""


def role_of(code: CodeType) -> str:
    """The role of a function in a FIFO round: step, policy, writer or upkeep."""
    for role, files in ROLES.items():
        for file, names in files.items():
            if code.co_filename.endswith(f"/{file}") and code.co_qualname in names:
                return role
    return "upkeep"


def upkeep(found: list[Round]) -> float:
    """Of the functions of a round, the percentage that is upkeep; the median over rounds."""
    return statistics.median(
        100.0 * sum(role_of(code) == "upkeep" for code in one.functions) / len(one.functions) for one in found
    )


# --- calls of a whole simulation ---------------------------------------------------------------------------------


class Calls:
    """Counts calls of functions, written in Python and in C, and those of numpy among them."""

    def __init__(self) -> None:
        self.all = self.numpy = 0

    def note(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            self.all += 1
            self.numpy += "/numpy/" in frame.f_code.co_filename
        elif event == "c_call":
            self.all += 1
            owner = getattr(called, "__self__", None)
            self.numpy += isinstance(owner, np.ndarray | np.generic) or _is_numpys(called, owner)


def _is_numpys(called: Any, owner: object) -> bool:
    module = getattr(called, "__module__", None) or getattr(owner, "__name__", "")
    return str(module).startswith("numpy")


def calls_of_a_job() -> float:
    """Calls a job in the engine's loop, where jobs come one by one and all fit."""
    calls, loop = Calls(), Engine.run_freely

    def watched(self: Engine) -> None:
        gc.disable()  # finalizers of what other tests left would count
        sys.setprofile(calls.note)
        try:
            loop(self)
        finally:
            sys.setprofile(None)
            gc.enable()

    with patched(Engine, "run_freely", watched):
        simulate(MANY_JOBS)
    return calls.all / JOBS


def calls_of_a_contended_step() -> tuple[float, float]:
    """Mean calls, and calls of numpy among them, of a step of the simulator in which more than five jobs wait."""
    calls, step = Calls(), Engine._step
    counted: list[tuple[int, int]] = []

    def watched(self: Engine, now: Seconds, *, admits: bool = True) -> None:
        waits = np.count_nonzero(self.sim.arbiter.state.jobs.live.state == JobState.WAITING)
        if waits <= FEW or len(counted) == CONTENDED_STEPS:
            step(self, now, admits=admits)
            return
        before = calls.all, calls.numpy
        gc.disable()  # finalizers of what other tests left would count
        sys.setprofile(calls.note)
        try:
            step(self, now, admits=admits)
        finally:
            sys.setprofile(None)
            gc.enable()
        counted.append((calls.all - before[0], calls.numpy - before[1]))

    with patched(Engine, "_step", watched):
        simulate(CONTENDED)
    if len(counted) < CONTENDED_STEPS:
        raise SystemExit(f"only {len(counted)} steps of the contended run have more than five waiting jobs")
    return statistics.mean(one for one, _ in counted), statistics.mean(two for _, two in counted)


# --- what one START writes ---------------------------------------------------------------------------------------


def stages(lease: Seconds | None) -> Any:
    registry = default_registry()
    parts = {"elasticity": "fixed", "valuation": "fifo", "allocation": "ordered", "placement": "packed"}
    made = {stage: registry.make(name, {}, alias=name, place=str) for stage, name in parts.items()}
    return assemble(**made, rounds=Rounds(lease=lease))


def adopting_a_start(lease: Seconds | None = None) -> tuple[set[str], int]:
    """Adopts a decision with one START; returns the stores that it changes, and the returns of functions on its way.

    The decision is made by one arbiter and replayed on another, which folded the events before: what is measured is a
    step without events that adopts the decision.
    """
    decides, adopts = (Arbiter(Cluster.parse("2x4 V100"), stages(lease), stages(lease)) for _ in range(2))
    for number in range(3):
        now, app = Seconds(float(number)), AppId(f"app{number}")
        job = JobAdded(job=JobId(f"{app}/0"), app=app, least=2, most=2, iterations=100.0, seconds_per_iteration=1.0)
        arrival = SingleJobArrived(arrival=AppArrived(app=app, user=UserId("ana"), divides=False), job=job)
        decision = decides.step(now, [arrival])
        folded = dataclasses.replace(decision, transitions=(), causes=frozenset(), waiting=())
        adopts.replay(now, [arrival], folded)
        before = stores(adopts.state)
        returns = 0

        def note(frame: FrameType, event: str, _: object) -> None:
            nonlocal returns
            returns += event == "return" and is_own(frame.f_code)

        gc.disable()  # finalizers of what other tests left would count
        sys.setprofile(note)
        try:
            adopts.replay(now, [], decision)
        finally:
            sys.setprofile(None)
            gc.enable()
        after = stores(adopts.state)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return changed, returns


def stores(state: Any) -> dict[str, Any]:
    """The content of every store of the state, by its place.

    A table, a set, a list, a dictionary and an index (an object with ``rebuild``, or of ``eunomia.model``) are a store
    each; so are all plain values of an object together. A value of two places counts at the first.
    """
    found: dict[str, Any] = {}
    _search(state, "state", found, {id(state.cluster)})
    return found


def _search(owner: Any, place: str, found: dict[str, Any], seen: set[int]) -> None:
    plain: dict[str, Any] = {}
    shared = {id(getattr(owner, name, None)) for name in _attributes(owner)}
    for name in _attributes(owner):
        item = getattr(owner, name, None)
        if item is None or isinstance(item, str | int | float | Enum | frozenset):
            plain[name] = repr(item)
        elif id(item) in seen or isinstance(item, tuple):
            continue
        elif isinstance(item, Table | dict | list | set | np.ndarray):
            found[f"{place}.{name}"] = _content(item)
        elif hasattr(item, "rebuild") or type(item).__module__.startswith("eunomia.model."):
            own = {part: getattr(item, part, None) for part in _attributes(item)}
            found[f"{place}.{name}"] = _content({part: kept for part, kept in own.items() if id(kept) not in shared})
        elif type(item).__module__.startswith("eunomia."):
            seen.add(id(item))
            _search(item, f"{place}.{name}", found, seen)
        seen.add(id(item))
    found[f"{place}: plain values"] = plain


def _attributes(owner: Any) -> list[str]:
    slots = [name for kind in type(owner).__mro__ for name in getattr(kind, "__slots__", ())]
    return [*slots, *getattr(owner, "__dict__", {})]


def _content(item: Any) -> str:
    if isinstance(item, Table):
        return repr(item.state())
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return _content({field.name: getattr(item, field.name) for field in dataclasses.fields(item)})
    if isinstance(item, dict):
        return repr([(key, _content(kept)) for key, kept in item.items()])
    if isinstance(item, set | frozenset):
        return repr(sorted(map(_content, item)))
    if isinstance(item, list | tuple):
        return repr([_content(part) for part in item])
    return repr(item.tolist()) if isinstance(item, np.ndarray) else repr(item)


# --- the source --------------------------------------------------------------------------------------------------


def writers() -> set[str]:
    """Functions of the core that write a table, as ``file:function``."""
    paths = [path for path in sorted((ROOT / "core").rglob("*.py")) if "testing" not in path.parts]
    return {f"{path.relative_to(ROOT)}:{name}" for path in paths for name in writers_in(path.read_text())}


def writers_in(source: str) -> set[str]:
    """Functions that assign to an item of ``x.cells.c`` or ``x.live.c``, or of a name that was set to one."""
    return {scope for scope, node in functions_of(ast.parse(source)) if _writes(node)}


def functions_of(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        inner = f"{scope}{node.name}" if isinstance(node, ast.FunctionDef | ast.ClassDef) else scope
        if isinstance(node, ast.FunctionDef):
            yield inner, node
        yield from functions_of(node, f"{inner}." if inner != scope else scope)


def _writes(function: ast.FunctionDef) -> bool:
    columns = set[str]()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                columns |= _bound(target, node.value, columns)
    for node in ast.walk(function):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            if any(isinstance(part, ast.Subscript) and _is_column(part.value, columns) for part in parts):
                return True
    return False


def _bound(target: ast.expr, value: ast.expr, columns: set[str]) -> set[str]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return {name for pair in zip(target.elts, value.elts, strict=True) for name in _bound(*pair, columns)}
    if isinstance(target, ast.Tuple):
        return {name for part in target.elts for name in _bound(part, value, columns)}
    bare = not any(isinstance(node, ast.Subscript | ast.Compare | ast.BinOp | ast.Call) for node in ast.walk(value))
    return {target.id} if isinstance(target, ast.Name) and bare and _is_column(value, columns) else set()


def _is_column(node: ast.expr, columns: set[str]) -> bool:
    """Whether an expression leads through ``cells`` or ``live``, or starts at a name that does."""
    return any(
        (isinstance(part, ast.Attribute) and part.attr in ("cells", "live", "_cells"))
        or (isinstance(part, ast.Name) and part.id in columns)
        for part in ast.walk(node)
    )


class Size(NamedTuple):
    """Number of methods of a class, properties among them, and of attributes that its methods or fields set."""

    methods: int
    attributes: int


def classes() -> dict[str, Size]:
    """Sizes of the classes of core and simulator."""
    found = {}
    for folder in CLASSES_IN:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not _is_enum(node):
                    found[f"{path.relative_to(ROOT)}:{node.name}"] = _size(node)
    return found


def _is_enum(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and "Enum" in base.id for base in node.bases)


def _size(owner: ast.ClassDef) -> Size:
    methods = [node for node in owner.body if isinstance(node, ast.FunctionDef)]
    names = {
        node.target.id for node in owner.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    for method in methods:
        for node in ast.walk(method):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names |= {node.attr} if isinstance(node.value, ast.Name) and node.value.id == "self" else set()
    return Size(len(methods), len(names))


def lines_of_core() -> int:
    """Lines of the core's modules."""
    return sum(path.read_text().count("\n") for path in (ROOT / "core").rglob("*.py"))


# --- all figures -------------------------------------------------------------------------------------------------


def figures() -> dict[str, float]:
    """All figures by name."""
    sizes = classes().values()
    written, returns = adopting_a_start()
    of_fifo = rounds(FIFO, wanted=one_start)
    fifo, themis = round_figures(of_fifo), round_figures(rounds(THEMIS, wanted=moves))
    calls, numpys = calls_of_a_contended_step()
    return {
        "stores written by a START": len(written),
        "stores written by a START, where leases end": len(adopting_a_start(Seconds(60.0))[0]),
        "returns of functions while a START is adopted": returns,
        "functions of the core that write a table": len(writers()),
        "methods of the largest class": max(size.methods for size in sizes),
        "attributes of the largest class": max(size.attributes for size in sizes),
        **{f"FIFO round with one START: {name}": figure for name, figure in fifo.items()},
        "FIFO round with one START: percent of functions that are upkeep": round(upkeep(of_fifo), 1),
        **{f"Themis round: {name}": figure for name, figure in themis.items()},
        "calls a job under FIFO": round(calls_of_a_job(), 1),
        "calls of a contended step of SRTF": round(calls, 1),
        "calls of numpy in a contended step of SRTF": round(numpys, 1),
        "lines of the core": lines_of_core(),
    }


def main() -> None:
    """Print the figures, the stores and the writers, and the functions of the median FIFO round."""
    for name, figure in figures().items():
        print(f"{figure:10g}  {name}")
    print("\nstores:", *sorted(adopting_a_start(Seconds(60.0))[0]), sep="\n  ")
    print("\nwriters:", *sorted(writers()), sep="\n  ")
    biggest = sorted(classes().items(), key=lambda item: -max(item[1]))[:12]
    print(
        "\nclasses:",
        *(f"{name}: {size.methods} methods, {size.attributes} attributes" for name, size in biggest),
        sep="\n  ",
    )
    found = sorted(rounds(FIFO, wanted=one_start), key=lambda one: len(one.functions))
    median = found[len(found) // 2]
    print("\nfunctions of the median FIFO round:")
    for code, calls in sorted(median.functions.items(), key=lambda item: (item[0].co_filename, item[0].co_firstlineno)):
        path = Path(code.co_filename).relative_to(ROOT)
        print(f"  {calls:4}  {lines_of(code):4} lines  {role_of(code):6}  {path}:{code.co_qualname}")


if __name__ == "__main__":
    main()
