"""Bad traces: each with file, line and rule."""

import gzip
import io
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from eunomia.errors import InputError
from eunomia_testbed.traces import read_trace
from eunomia_testbed.traces.source import MOST_LINE

HEADER = "job_id,submit_s,submit_local,duration_s,num_gpus,vc,status,afs_model"
GAVEL = "LM (batch size 10)\tpython3 main.py\tlanguage_modeling\t--steps\t1\t{steps}\t{gpus}\t1\t-1.0\t{arrival}"
SAMPLES = Path(__file__).parent / "samples"


def row(job: str, submit: object = 0, duration: object = 10, gpus: object = 1) -> str:
    return f"{job},{submit},,{duration},{gpus},vc1,Pass,m"


def philly(tmp_path: Path, rows: Sequence[str], header: str = HEADER) -> Path:
    path = tmp_path / "philly.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def refusal(path: Path | str, **options: object) -> str:
    with pytest.raises(InputError) as raised:
        read_trace(path, **options)  # type: ignore[arg-type]
    return str(raised.value)


@pytest.mark.parametrize(
    ("bad", "rule", "value"),
    [
        (row("b", submit=-5), "submit_s must be at least 0", "-5"),
        (row("b", submit="nan"), "submit_s must be a number of seconds", "nan"),
        (row("b", submit="inf"), "submit_s must be a number of seconds", "inf"),
        (row("b", submit="soon"), "submit_s must be a number of seconds", "soon"),
        (row("b", submit=""), "submit_s must be a number of seconds", ""),
        (row("b", duration=-1), "duration_s must be above 0", "-1"),
        (row("b", duration=0), "duration_s must be above 0", "0"),
        (row("b", duration="NaN"), "duration_s must be a number of seconds", "NaN"),
        (row("b", duration="1e300"), "duration_s must be at most 3.15576e+09", "1e300"),
        (row("b", gpus=0), "num_gpus must be at least 1", "0"),
        (row("b", gpus=-3), "num_gpus must be at least 1", "-3"),
        (row("b", gpus=1.5), "num_gpus must be a whole number", "1.5"),
        (row("b", gpus="many"), "num_gpus must be a whole number", "many"),
        (row("b", gpus=10**9), "num_gpus must be at most 1e+06", "1000000000"),
        (row("a"), "job_id must be unique", "a"),
        (row(""), "job_id must not be empty", ""),
        (row("b") + ",1,2", "a row must have 8 fields", "10"),
        ("b,1,2", "a row must have 8 fields", "3"),
        ('b,0,,10,1,"vc1,Pass,m', "a quoted field must end on its line", 'b,0,,10,1,"vc1,Pass,m'),
    ],
)
def test_a_bad_row_is_dropped_with_its_rule_or_refused_if_strict(
    tmp_path: Path, bad: str, rule: str, value: str
) -> None:
    path = philly(tmp_path, [row("a"), "", bad, row("c", submit=20)])
    read = read_trace(path)
    assert list(read.apps.id) == ["a", "c"]
    (entry,) = read.dropped
    assert (entry.file, entry.line, entry.rule) == ("philly.csv", 4, rule)
    assert entry.value == value
    shown = f'"{value}"' if value else "nothing"
    assert refusal(path, strict=True) == f"{rule}, but got {shown} (philly.csv, line 4)"


def test_strict_names_the_first_bad_line_whatever_its_rule(tmp_path: Path) -> None:
    path = philly(tmp_path, [row("a"), row("b", gpus=0), row("c", submit=-1)])
    assert refusal(path, strict=True).endswith("(philly.csv, line 3)")


def test_strict_accepts_a_trace_without_a_fault(tmp_path: Path) -> None:
    assert read_trace(philly(tmp_path, [row("a"), row("b", submit=3)]), strict=True).size == 2


def test_milliseconds_among_seconds_are_detected(tmp_path: Path) -> None:
    rows = [row(f"j{number}", submit=1000 * number) for number in range(100)]
    rows[50] = row("j50", submit=50_000_000)
    rows[90] = row("j90", submit=90_000_000)
    read = read_trace(philly(tmp_path, rows))
    assert [(entry.line, entry.value) for entry in read.dropped] == [(52, "50000000"), (92, "90000000")]
    assert read.dropped[0].rule.startswith("submit_s must be in one unit, seconds")


def test_milliseconds_since_1970_are_not_accepted_as_seconds(tmp_path: Path) -> None:
    path = philly(tmp_path, [row("a", submit=1_600_000_000_000)])
    assert "submit_s must be at most 1e+11" in refusal(path)


def test_arrivals_far_apart_are_accepted_if_most_are_in_the_same_unit(tmp_path: Path) -> None:
    rows = [row(f"j{number}", submit=86400 * number) for number in range(400)]
    assert not read_trace(philly(tmp_path, rows)).dropped


def test_a_column_in_another_unit_is_named(tmp_path: Path) -> None:
    said = refusal(philly(tmp_path, [row("a")], header=HEADER.replace("duration_s", "duration_ms")))
    assert 'no "duration_s", but "duration_ms", which is in another unit (philly.csv, line 1)' in said


def test_missing_and_duplicate_columns_are_refused(tmp_path: Path) -> None:
    said = refusal(philly(tmp_path, ["a,0,1"], header="job_id,submit_s,num_gpus"), format="philly")
    assert said == (
        "a trace of format philly must have columns job_id, submit_s, duration_s, num_gpus, vc, "
        'but got no "duration_s" and "vc" (philly.csv, line 1)'
    )
    said = refusal(philly(tmp_path, [row("a") + ",x"], header=HEADER + ",vc"))
    assert said == 'names of columns must be unique, but got "vc" twice (philly.csv, line 1)'


def test_a_trace_without_a_good_row_is_refused_with_the_first_broken_rule(tmp_path: Path) -> None:
    assert refusal(philly(tmp_path, [])) == "a trace must hold at least one job, but got no row (philly.csv)"
    said = refusal(philly(tmp_path, [row("a", gpus=0), row("b", gpus=0)]))
    assert 'none of 2 rows; the first: num_gpus must be at least 1, but got "0", line 2 (philly.csv)' in said


def test_users_missing_from_the_trace_are_refused(tmp_path: Path) -> None:
    said = refusal(philly(tmp_path, [row("a")]), users=("vc2",))
    assert said == "a trace must hold jobs of the users asked for, but got vc2 (philly.csv)"


def gavel(tmp_path: Path, *lines: tuple[object, object, object]) -> Path:
    path = tmp_path / "jobs.trace"
    path.write_text("".join(GAVEL.format(steps=s, gpus=g, arrival=a) + "\n" for s, g, a in lines))
    return path


def test_gavel_rows_out_of_order_are_sorted_or_refused_if_strict(tmp_path: Path) -> None:
    path = gavel(tmp_path, (100, 1, 0), (100, 1, 50), (100, 1, 40), (100, 1, 60))
    read = read_trace(path)
    assert list(read.apps.id) == ["0", "2", "1", "3"] and not read.dropped
    assert read.notes == ("sorted by arrival: 1 of 4 rows were out of order, first line 3",)
    rule = "arrival_time must not be earlier than in a line before"
    assert refusal(path, strict=True) == f'{rule}, but got "40" (jobs.trace, line 3)'


def test_a_job_type_without_throughput_is_refused(tmp_path: Path) -> None:
    path = gavel(tmp_path, (100, 1, 0), (100, 8, 1))
    read = read_trace(path, throughputs=SAMPLES / "throughputs.json")
    assert [(entry.line, entry.rule, entry.value) for entry in read.dropped] == [
        (2, "job_type must have a throughput in throughputs.json", "LM (batch size 10) with 8 GPUs")
    ]
    said = refusal(path, throughputs=SAMPLES / "throughputs.json", gpu_type="v1000")
    assert said.startswith('a GPU type must be one that throughputs are for: v100, k80, but got "v1000"; did you mean')


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    text = (SAMPLES / "shockwave.trace").read_text().replace("\tgns\t", "\tpollux\t")
    (tmp_path / "a.trace").write_text(text)
    (entry,) = read_trace(tmp_path / "a.trace").dropped
    assert (entry.line, entry.rule) == (2, "mode must be one of static, accordion, gns")


def test_paths_that_are_not_files_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere.csv").startswith("a trace must exist, but got ")
    assert refusal(tmp_path).endswith(", a directory")
    (tmp_path / "empty.csv").write_bytes(b"")
    assert refusal(tmp_path / "empty.csv") == "a trace must not be empty, but got 0 bytes (empty.csv)"
    (tmp_path / "blank.csv").write_bytes(b"\n\n  \n")
    assert refusal(tmp_path / "blank.csv") == "a trace must not be empty, but got 5 bytes (blank.csv)"


def test_binary_garbage_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(f"{HEADER}\n{row('a')}\n".encode() + bytes(range(256)))
    assert refusal(tmp_path / "a.csv").endswith("but got a zero byte (a.csv, line 3)")
    (tmp_path / "b.csv").write_bytes(f"{HEADER}\n\n\xe9".encode("latin-1"))
    assert refusal(tmp_path / "b.csv").endswith("but got byte 0xe9 (b.csv, line 3)")
    assert "must be text in UTF-8" in refusal(tmp_path / "a.csv", format="philly")


def test_a_truncated_or_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    packed = gzip.compress(philly(tmp_path, [row(f"j{number}", submit=number) for number in range(9)]).read_bytes())
    (tmp_path / "a.csv.gz").write_bytes(packed[: len(packed) // 2])
    assert refusal(tmp_path / "a.csv.gz").startswith("a gzip file must be whole, but got Compressed file ended")
    (tmp_path / "b.csv.gz").write_bytes(packed[:40] + b"\0\0\0\0" + packed[44:])
    assert refusal(tmp_path / "b.csv.gz").startswith("a gzip file must be whole")
    (tmp_path / "c.csv.gz").write_bytes(packed)
    assert read_trace(tmp_path / "c.csv.gz").size == 9


def test_a_huge_line_is_refused(tmp_path: Path) -> None:
    path = philly(tmp_path, [row("a"), row("b" * MOST_LINE, submit=1), row("c", submit=2)])
    (entry,) = read_trace(path).dropped
    assert (entry.line, entry.rule) == (3, f"a line must be at most {MOST_LINE} characters")
    assert len(entry.value) < 100


def test_a_wrong_or_unknown_format_is_refused(tmp_path: Path) -> None:
    path = philly(tmp_path, [row("a")])
    assert "a trace of format openb must have columns" in refusal(path, format="openb")
    assert "a row must have 10 fields" in refusal(path, format="gavel")
    assert refusal(path, format="phily").endswith('but got "phily"; did you mean "philly"? (--format)')
    (tmp_path / "x.txt").write_text("hello world\n" * 3)
    assert refusal(tmp_path / "x.txt").endswith('swf), but got "hello world" (x.txt, line 1)')


def test_an_empty_stdin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    assert refusal("-") == "a trace must not be empty, but got 0 bytes (stdin)"


@pytest.mark.parametrize(
    "text", ['[{"jobid": "a", "attempts": [', '{"jobid": 1, "attempts": 2}', '["jobid","attempts"]']
)
def test_invalid_json_and_json_of_another_form_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.json").write_text("\n" + text)
    assert refusal(tmp_path / "log.json").startswith("cluster_job_log must be ")


def test_crlf_and_a_byte_order_mark_are_accepted(tmp_path: Path) -> None:
    text = "\r\n".join(["\ufeff" + HEADER, row("a"), row("b", submit=1), ""])
    (tmp_path / "dos.csv").write_bytes(text.encode())
    read = read_trace(tmp_path / "dos.csv")
    assert read.size == 2 and not read.dropped


def test_the_number_of_first_jobs_must_be_positive(tmp_path: Path) -> None:
    assert refusal(philly(tmp_path, [row("a")]), first_jobs=0) == "first_jobs must be at least 1, but got 0"


JUNK = ("", "-1", "nan", "inf", "1e400", "\t", ",", ";", '"', "x", "9" * 20, "null", "[]", "{}", "\r", "\n", "é", "a/b")


def spoiled(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(text) + 1)
        text = text[:start] + chance.choice(JUNK) + text[start + chance.choice((0, 1, 3, 10, 40)) :]
    return text


def files() -> Iterator[tuple[str, str]]:
    yield from (("philly.csv", "philly"), ("cluster_job_log.json", "philly_json"), ("openb_pods.csv", "openb"))
    yield from (("gavel.trace", "gavel"), ("shockwave.trace", "shockwave"), ("synergy_static", "synergy"))
    yield from (("helios_cluster_log.csv", "helios"), ("pai_task_table.csv", "pai"), ("small.swf", "swf"))
    yield from (("pollux_philly.csv", "pollux_philly"), ("pollux_workload.csv", "pollux"))


@pytest.mark.parametrize(("name", "kind"), tuple(files()))
@pytest.mark.filterwarnings("error")
def test_randomly_changed_files_are_read_or_refused_without_a_crash(tmp_path: Path, name: str, kind: str) -> None:
    whole, chance = (SAMPLES / name).read_text(), random.Random(name)
    lines = whole.count("\n") + 1
    for _ in range(30):
        (tmp_path / name).write_text(spoiled(whole, chance))
        try:
            read = read_trace(tmp_path / name, format=kind, throughputs=SAMPLES / "throughputs.json")
        except InputError as error:
            assert str(error)
            continue
        assert 0 < read.size <= lines and (read.jobs.most >= 1).all()
        assert (read.jobs.iterations > 0).all() and (read.jobs.arrival_seconds >= 0).all()


@pytest.mark.parametrize("kind", ["philly_json", "swf", "gavel", "synergy", "pai", "openb", "eunomia"])
@pytest.mark.parametrize("text", ["[]", "{}", ";", "x", ",", "\t", "a\nb"])
def test_incomplete_text_is_refused_by_every_format(tmp_path: Path, kind: str, text: str) -> None:
    (tmp_path / "scrap").write_text(text)
    assert "(scrap" in refusal(tmp_path / "scrap", format=kind)


def test_endlessly_nested_lists_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 200_000)
    with pytest.raises(InputError, match="cluster_job_log must be a list of jobs"):
        read_trace(path, format="philly_json")
    deep = pl.DataFrame(
        {"job": ["a", "b"], "arrival_seconds": [0, 1], "most_gpus": 1, "iterations": 5, "regimes": ["", "[" * 200_000]}
    )
    deep.write_parquet(tmp_path / "deep.parquet")
    dropped = read_trace(tmp_path / "deep.parquet").dropped
    assert [each.rule for each in dropped] == ["regimes must be JSON as the reference says"]


def test_an_impossible_file_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a trace must be readable, but got File name too long"):
        read_trace(tmp_path / ("x" * 300))
