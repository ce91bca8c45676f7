"""A job's output is bounded while its worker writes on: no kept line is lost, and ``eunomia logs`` reads the rest."""

import io
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from appmaster.launcher_lab import eventually, lab
from eunomia.cli import run
from eunomia_appmaster.app.master_logs import STDERR as MASTER_STDERR
from eunomia_appmaster.app.master_logs import master_logs, own_master_log
from eunomia_appmaster.app.outputs import STDOUT, newest_output, output_files, own_output
from eunomia_appmaster.commands.logs import _ends, _write_from
from eunomia_appmaster.launcher.output_limit import _bound_as_owner, shorten
from eunomia_appmaster.node.job_limits import MIB, JobLimits

MOST = MIB
WRITER = """
import sys
with open(sys.argv[1], "a") as file:
    for number in range(int(sys.argv[2])):
        file.write(f"line {number} " + "x" * 200 + chr(10))
        file.flush()
"""


def _write_end(files: Sequence[Path], lines: int, out: BinaryIO) -> dict[Path, int]:
    return {end.file: _write_from(end.file, end.start, out, until=end.size) for end in _ends(files, lines)}


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


def shown(path: Path, lines: int) -> str:
    out = io.BytesIO()
    _write_end([path], lines, out)
    return out.getvalue().decode()


def numbers(text: str) -> list[int]:
    return [int(line.split()[1]) for line in text.splitlines() if line.startswith("line ")]


def test_a_worker_that_continues_to_write_loses_no_line_after_the_gap(tmp_path: Path) -> None:
    path, count = tmp_path / "stdout.log", 60_000
    path.touch()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(count)]) as writer:
        removed = 0
        while writer.poll() is None:
            removed += shorten(path, MOST)
            time.sleep(0.002)
    removed += shorten(path, MOST)
    assert removed > 0 and blocks(path) <= MOST + 8192 < path.stat().st_size
    text = shown(path, 0)
    first, *_ = text.splitlines()
    kept = numbers(text)
    assert first.startswith("[eunomia: ") and " bytes of earlier output were removed here" in first
    assert int(first.split()[1]) + len(text) - len(first) - 1 == path.stat().st_size
    assert kept == list(range(kept[0], count)) and "\0" not in text


def test_logs_show_lines_before_and_after_the_gap_and_can_follow_the_file(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    subprocess.run([sys.executable, "-c", WRITER, str(path), "20000"], check=True)
    place = 100
    assert shorten(path, MOST) > 0
    assert numbers(shown(path, 3)) == [19997, 19998, 19999]
    assert len(shown(path, 10**9).splitlines()) == len(shown(path, 0).splitlines())
    out = io.BytesIO()
    assert _write_from(path, place, out) == path.stat().st_size
    assert out.getvalue().startswith(b"[eunomia: ")


def test_output_within_the_limit_is_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    path.write_bytes(b"a\n" * 1000)
    assert shorten(path, MOST) == 0
    assert path.read_bytes() == b"a\n" * 1000


def test_a_single_endless_line_is_shortened_too(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    path.write_bytes(b"y" * (3 * MOST))
    assert shorten(path, MOST) > 0
    assert blocks(path) <= MOST and shown(path, 0).endswith("y" * 1000)


def test_a_huge_hole_in_a_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    path.write_bytes(b"first\n")
    os.truncate(path, 100 << 30)
    with path.open("ab") as file:
        file.write(b"last\n")
    shorten(path, 4096)
    assert shown(path, 0).startswith("[eunomia: ") and shown(path, 0).endswith("last\n")
    assert len(shown(path, 100)) < 1 << 20


def test_the_last_lines_are_found_after_a_hole_of_100_gib(tmp_path: Path) -> None:
    path = tmp_path / "stdout.log"
    path.write_bytes(b"first\n")
    os.truncate(path, 100 << 30)
    with path.open("ab") as file:
        file.write(b"one\ntwo\n")
    assert shown(path, 5).lstrip("\0") == "one\ntwo\n"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "precious", tmp_path / "stdout.log"
    target.write_bytes(b"z\n" * MOST)
    link.symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        shorten(link, MOST)
    assert target.read_bytes() == b"z\n" * MOST
    fifo = tmp_path / "stderr.log"
    os.mkfifo(fifo)
    assert shorten(fifo, 1) == 0


def test_a_launcher_limits_the_output_of_a_running_worker(tmp_path: Path) -> None:
    script = (
        "import pathlib, time\n"
        "for number in range(40000): print(f'line {number} ' + 'x' * 200, flush=True)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.05)\n"
        "print('line 40000', flush=True)\n"
    )
    with lab(tmp_path, limits=JobLimits(output_bytes=MIB)) as made:
        made.runtime().start(made.gang(1, script=script))
        path = made.run_folder() / "stdout.log"
        eventually(lambda: path.exists() and path.stat().st_size > 8 * MIB and blocks(path) <= MIB, "shortened")
        (tmp_path / "go").touch()
        made.completed("ana-1.r1.1")
        kept = numbers(shown(path, 0))
        assert kept == list(range(kept[0], 40001)) and len(kept) > 1000


def test_output_files_are_read_and_deleted_in_the_order_of_their_starts(tmp_path: Path) -> None:
    assert output_files(tmp_path, STDOUT) == [tmp_path / STDOUT]
    (tmp_path / STDOUT).write_text("of an earlier version\n")
    starts = [(1, 2, "b"), (1, 10, "a"), (1, 10, "b"), (2, 3, "a")]
    for attempt, incarnation, node in starts:
        path = own_output(tmp_path, attempt, incarnation, node, STDOUT)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{attempt} {incarnation} {node}\nmore\n")
    (tmp_path / "output" / "a1-i2-g1.b.stderr.log").write_text("an error\n")
    files = output_files(tmp_path, STDOUT)
    assert [path.name for path in files[1:]] == [
        f"a{attempt}-i{incarnation}-g1.{node}.stdout.log" for attempt, incarnation, node in starts
    ]
    out = io.BytesIO()
    ends = _write_end(files, 3, out)
    assert out.getvalue() == b"more\n2 3 a\nmore\n"
    assert {path: path.stat().st_size for path in files} == ends
    whole = io.BytesIO()
    _write_end(files, 0, whole)
    assert whole.getvalue().startswith(b"of an earlier version\n1 2 b\nmore\n1 10 a\n")
    assert newest_output(tmp_path, STDOUT) == files[-1]
    files[-1].write_text("")
    assert newest_output(tmp_path, STDOUT) == files[-2], "a start that has not written yet"


def test_only_the_node_of_the_newest_start_deletes_the_oldest_output_files(tmp_path: Path) -> None:
    for incarnation, node in ((1, "a"), (2, "b"), (3, "a"), (4, "b")):
        path = own_output(tmp_path, 1, incarnation, node, STDOUT)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x\n" * (MIB // 4))
    assert _bound_as_owner(tmp_path, tmp_path, "a", MOST) == []
    assert len(output_files(tmp_path, STDOUT)) == 5, "a start on the other node is newer"
    assert _bound_as_owner(tmp_path, tmp_path, "b", MOST) == []
    assert [path.name[:5] for path in output_files(tmp_path, STDOUT)[1:]] == ["a1-i3", "a1-i4"]


def test_logs_of_app_masters_on_two_nodes_are_read_in_the_order_of_attempts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    app = tmp_path / "apps" / "ana"
    app.mkdir(parents=True)
    (app / "appmaster.err.log").write_text("earlier version\n")
    for attempt, node, words in [(10, "a01", "ten"), (2, "b08", "two on b08"), (2, "a.err.log", "two elsewhere")]:
        own_master_log(app, attempt, node, MASTER_STDERR).write_text(f"{words}\n")
    own_master_log(app, 2, "b08", "out.log").write_text("printed\n")
    (app / "appmaster.txt").write_text("none\n")
    named = [path.name for path in master_logs(app, MASTER_STDERR)]
    assert named == [
        "appmaster.err.log",
        "appmaster.a2.a.err.log.err.log",
        "appmaster.a2.b08.err.log",
        "appmaster.a10.a01.err.log",
    ]
    assert run(["logs", "ana", "--app-master", "--run", str(tmp_path)]) == 0
    assert capfd.readouterr().out == "earlier version\ntwo elsewhere\ntwo on b08\nten\n"
    assert run(["logs", "ana", "--app-master", "--run", str(tmp_path), "--lines", "2"]) == 0
    shown = capfd.readouterr()
    assert shown.out == "two on b08\nten\n"
    assert shown.err == "the last 2 lines; earlier ones are left out (eunomia logs --lines 0 shows all)\n"
    assert run(["logs", "ana", "--app-master", "--run", str(tmp_path), "--lines", "4"]) == 0
    assert "left out" not in capfd.readouterr().err
