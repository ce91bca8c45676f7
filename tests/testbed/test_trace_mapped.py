"""Tables of jobs under any names, read by a mapping of columns and units."""

from pathlib import Path

import pytest

from eunomia.cli import run
from eunomia.errors import InputError
from eunomia_testbed.traces import read_trace

ROWS = "who,queued,took,cards\na,1500000,2,4\nb,1560000,0.5,1\nc,1620000,1,2\n"
COLUMNS = {"id": "who", "submit": "queued:ms", "duration": "took:h", "gpus": "cards"}


def written(folder: Path, text: str) -> Path:
    """A file of the text."""
    path = folder / "jobs.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("separator", [",", "\t", ";", "|", " "])
def test_columns_are_read_in_their_units(tmp_path: Path, separator: str) -> None:
    workload = read_trace(written(tmp_path, ROWS.replace(",", separator)), columns=COLUMNS)
    assert list(workload.apps.id) == ["a", "b", "c"]
    assert workload.jobs.arrival_seconds.tolist() == [0.0, 60.0, 120.0]
    assert workload.jobs.iterations.tolist() == [7200.0, 1800.0, 3600.0]
    assert workload.jobs.most.tolist() == workload.jobs.least.tolist() == [4, 1, 2]
    assert workload.dropped == () and workload.source == "mapped"


def test_durations_are_computed_from_start_and_end_times(tmp_path: Path) -> None:
    rows = (
        "s,e,g,u,m\n2020-06-09 18:00:00,2020-06-09 19:00:00,1,ana,net\n2020-06-09 18:30:00,2020-06-09 18:20:00,1,bo,\n"
    )
    columns = {"submit": "s:time", "end": "e:time", "gpus": "g", "user": "u", "model": "m"}
    workload = read_trace(written(tmp_path, rows), columns=columns)
    assert workload.jobs.iterations.tolist() == [3600.0] and list(workload.apps.id) == ["job2"]
    assert list(workload.users.id) == ["ana"] and workload.models == ("net",)
    assert [(row.line, row.rule) for row in workload.dropped] == [(3, "e must be after s")]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"submit": "queued:sec"},
            r'unit must be one of ns, us, ms, s, min, h, d, time, but got "sec" \(trace\.',
        ),
        ({"duration": "took:time"}, 'unit must be one of ns, us, ms, s, min, h, d, but got "time"'),
        ({"end": "took:h"}, "columns must name duration or end, but got both"),
        ({"duraton": "took"}, 'columns must be of .*, but got "duraton"; did you mean "duration"?'),
        ({"gpus": "card"}, r"a trace of format columns must have columns .* did you mean \"cards\""),
        ({"submit": ":ms"}, "a column must have a name"),
    ],
)
def test_an_unsuitable_mapping_is_refused(tmp_path: Path, changed: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_trace(written(tmp_path, ROWS), columns=COLUMNS | changed)


def test_missing_columns_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, ROWS)
    with pytest.raises(InputError, match="columns must name submit"):
        read_trace(path, columns={"gpus": "cards"})
    with pytest.raises(InputError, match="columns must name submit"):
        read_trace(path, format="columns")
    with pytest.raises(InputError, match="must both be calendar times, or neither"):
        read_trace(path, columns={"submit": "queued:time", "end": "took", "gpus": "cards"})
    with pytest.raises(InputError, match="columns must stand without a format"):
        read_trace(path, format="philly", columns=COLUMNS)


def test_the_command_line_maps_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, ROWS)
    flags = [word for key, text in COLUMNS.items() for word in ("--set", f"trace.columns.{key}={text}")]
    common = ["simulate", str(path), "--cluster", "1x4 V100", "--policy", "fifo", "--no-progress"]
    assert run([*common, *flags, "--out", str(tmp_path / "run"), "--json"]) == 0
    assert '"makespan_seconds": 10800.0' in capsys.readouterr().out
    assert run([*common, *flags, *flags[:2], "--out", str(tmp_path / "twice")]) == 2
    assert "must be KEY=NAME or KEY=NAME:UNIT, each key once" in capsys.readouterr().err
