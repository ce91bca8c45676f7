"""Service, launcher and master use clocks, threads and connections through ``eunomia_appmaster.node.system`` alone."""

import ast
import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

import eunomia_appmaster
from eunomia_appmaster.node.system import MACHINE

PACKAGE = Path(eunomia_appmaster.__file__).parent
ROOMS = ("service", "launcher", "master", "runtimes")
ALONE = {"launcher/shepherd.py", "launcher/zygote.py"}
"""They run alone in a process, before or without this package's modules."""
OF_THE_PROCESS = {"service/watchdog.py"}
"""It counts the time of the process itself, and ends it: no virtual time has that."""
OF_THE_MACHINE = {
    "time": {"time", "sleep", "monotonic", "perf_counter", "clock_gettime"},
    "threading": {"Thread", "Event", "Lock", "RLock", "Condition", "Timer"},
    "queue": {"Queue", "SimpleQueue"},
    "os": {"_exit"},
    "grpc": {"insecure_channel", "secure_channel"},
    "grpc.aio": {"insecure_channel", "secure_channel"},
}


def _modules() -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((PACKAGE / room).rglob("*.py")):
            if str(path.relative_to(PACKAGE)) not in ALONE | OF_THE_PROCESS:
                yield path


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(PACKAGE))) for path in _modules()])
def test_modules_use_clock_and_disk_only_through_the_system_interface(path: Path) -> None:
    tree = ast.parse(path.read_text())
    uses = {
        f"{ast.unparse(node.value)}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in OF_THE_MACHINE.get(ast.unparse(node.value), set())
    }
    imports = {
        f"{node.module}.{name.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if name.name in OF_THE_MACHINE.get(node.module or "", set())
    }
    assert not uses | imports


def test_the_crash_point_explorer_patches_no_module() -> None:
    folder = Path(__file__).parents[1] / "chaos" / "crash_points"
    sources = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert "system.py" in sources
    assert [name for name, text in sources.items() if "setattr(" in text or "mock" in text] == []


def test_a_file_is_replaced_atomically_and_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for text in ("first", "second"):
        MACHINE.replace_file(path, text)
    MACHINE.append_line(path, "third")
    assert path.read_text() == "secondthird\n"
    assert [found.name for found in tmp_path.iterdir()] == ["state.json"]


def test_threads_pass_items_through_a_mailbox_and_wait_for_flags() -> None:
    mailbox, done = MACHINE.mailbox(), MACHINE.flag()

    def work() -> None:
        mailbox.put("item")
        done.set()

    MACHINE.start_thread(work, "worker")
    assert done.wait(30.0)
    assert mailbox.get(timeout=30.0) == "item"
    assert mailbox.empty()
    with pytest.raises(queue.Empty):
        mailbox.get(timeout=0.0)


def test_the_clocks_of_the_system_never_go_back() -> None:
    before = (MACHINE.monotonic(), MACHINE.uptime())
    MACHINE.sleep(0.001)
    assert before[0] < MACHINE.monotonic()
    assert before[1] < MACHINE.uptime()
