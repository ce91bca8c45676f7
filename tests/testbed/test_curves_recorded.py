"""Sixty learning curves of the demo's models: how well their ends are foretold, and what stopping saves and loses."""

import math
from pathlib import Path

import pytest

from curves import evaluate
from curves.coverage import foretell
from curves.replay import replay
from curves.searches import MAX_ITERATIONS, SEARCHES, TRIALS, parameters
from curves.stops import outcome
from curves.table import COLUMNS, RecordedCurve, read, write
from eunomia.errors import InputError

FILE = Path(__file__).parent / "samples" / "learning-curves.csv"
STOPS = {"mlp": (16, 0.5125), "cnn": (16, 0.4875), "transformer": (13, 0.3)}
"""Trials stopped of twenty, and the part of all iterations that was saved."""
WITHIN = {("mlp", 0.25): [19, 20], ("cnn", 0.5): [16, 19], ("transformer", 0.75): [16, 19]}
"""Ends within intervals of 80 and 90 %, of twenty, by model and part of the run."""


@pytest.fixture(scope="module")
def searches() -> dict[str, list[RecordedCurve]]:
    return evaluate.by_model(read(FILE))


def test_there_are_sixty_curves_with_the_parameters_of_the_seed(
    searches: dict[str, list[RecordedCurve]],
) -> None:
    assert {model: len(curves) for model, curves in searches.items()} == dict.fromkeys(SEARCHES, TRIALS)
    for model, curves in searches.items():
        for number, curve in enumerate(curves, 1):
            assert curve.trial == number
            assert curve.iterations == tuple(range(15, MAX_ITERATIONS + 1, 15))
            drawn = [f"{name}={given}" for name, given in parameters(model, number).items()]
            assert curve.parameters == " ".join(drawn)
    ends = [curve.accuracies[-1] for curves in searches.values() for curve in curves]
    assert sum(end > 0.95 for end in ends) >= 15 and sum(end < 0.5 for end in ends) >= 15, "good ones and bad ones"


@pytest.mark.parametrize("model", SEARCHES)
def test_no_trial_is_stopped_that_would_have_been_the_best(
    searches: dict[str, list[RecordedCurve]], model: str
) -> None:
    found = outcome("curve_stopping", searches[model], metric="val/accuracy")
    assert (found.wrong, found.lost) == ((), 0.0)
    stopped, saved = STOPS[model]
    assert found.stopped == pytest.approx(stopped, abs=1)
    assert found.saved == pytest.approx(saved, abs=0.03)


@pytest.mark.parametrize(
    ("model", "fraction"),
    [
        ("cnn", 0.5),
        pytest.param("mlp", 0.25, marks=pytest.mark.slow),
        pytest.param("transformer", 0.75, marks=pytest.mark.slow),
    ],
)
def test_final_values_lie_in_predicted_intervals_as_often_as_the_table_states(
    searches: dict[str, list[RecordedCurve]], model: str, fraction: float
) -> None:
    told = foretell(searches[model], "val/accuracy", fraction)
    within = [sum(each.within(nominal) for each in told) for nominal in (0.8, 0.9)]
    assert len(told) == TRIALS
    assert within == pytest.approx(WITHIN[model, fraction], abs=1)


def test_without_stopping_every_trial_runs_to_its_end(searches: dict[str, list[RecordedCurve]]) -> None:
    found = outcome("none", searches["cnn"], metric="val/accuracy")
    assert (found.stopped, found.wrong, found.saved, found.lost) == (0, (), 0.0, 0.0)


def curve(trial: int, *ends: float) -> RecordedCurve:
    return RecordedCurve(
        model="mlp",
        trial=trial,
        parameters=f"lr=0.{trial}",
        iterations=tuple(range(10, 10 * len(ends) + 1, 10)),
        accuracies=ends,
        losses=tuple(1.0 - end for end in ends),
    )


def test_halving_is_replayed_rung_by_rung() -> None:
    """By hand: rungs at 10, 20 and 40; the two better go on from the first, the better one from the second."""
    curves = [curve(1, 0.1, 0.9, 0.9, 0.9), curve(2, 0.2, 0.3, 0.4, 0.5), curve(3, 0.3, 0.4, 0.5, 0.6)]
    curves.append(curve(4, 0.0, 0.0, 0.0, 0.0))
    for slots in (0, 1):
        run = replay("successive_halving", curves, metric="val/accuracy", slots=slots)
        assert run.iterations == {1: 10, 2: 20, 3: 40, 4: 10}
        assert run.stopped == {1: 10, 2: 20, 4: 10}
    found = outcome("successive_halving", curves, metric="val/accuracy")
    assert found.wrong == (1,) and found.lost == pytest.approx(0.3)
    assert found.saved == pytest.approx(1 - 80 / 160)


def test_recorded_curves_are_read_back_including_non_finite_values(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    curves = (curve(1, 0.5, 0.625), curve(2, 0.25, math.inf - math.inf))
    write(path, curves, ["where from"])
    assert path.read_text().startswith("# where from\n" + ",".join(COLUMNS))
    one, two = read(path)
    assert one == curves[0]
    assert two.accuracies[0] == 0.25 and math.isnan(two.accuracies[1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns must be model, trial"),
        ("a,b\n", 'columns must be model, .* but got "?a, b"? '),
        ("HEAD\nmlp,1,lr=1,15,0.5\n", r"a row must be a point of a curve.*bad.csv, line 2"),
        ("HEAD\nmlp,1,lr=1,15,0.5,1\nmlp,1,lr=1,15,0.6,1\n", r"iterations must ascend .*line 3"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text.replace("HEAD", ",".join(COLUMNS)))
    with pytest.raises(InputError, match=message):
        read(path)


def test_the_command_prints_both_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "few.csv"
    few = [each for each in read(FILE) if each.model == "cnn" and each.trial <= 3]
    write(path, few, [])
    assert evaluate.main([str(path), "--tuner", "none", "--tuner", "median_stopping"]) == 0
    printed = capsys.readouterr().out
    assert "within 90 %" in printed and "median_stopping" in printed
    assert evaluate.main([str(tmp_path / "none.csv")]) == 2
    assert "error: a file of curves must be readable" in capsys.readouterr().err
    assert evaluate.main([str(path), "--tuner", "medium_stopping"]) == 2
    assert "kind must name a tuner" in capsys.readouterr().err


@pytest.mark.slow
def test_a_recording_continues_after_its_last_trial(tmp_path: Path) -> None:
    """And its first epochs are those on file, up to what another processor rounds otherwise."""
    from curves import record

    path = tmp_path / "recorded.csv"
    assert record.main(["--out", str(path), "--model", "mlp", "--trials", "1", "--max-iterations", "45"]) == 0
    (one,) = read(path)
    assert one.accuracies == pytest.approx(read(FILE)[0].accuracies[:3], abs=0.05)
    assert record.main(["--out", str(path), "--model", "mlp", "--trials", "2", "--max-iterations", "45"]) == 2
    lines = path.read_text().replace("--trials 1", "--trials 2")
    path.write_text(lines)
    assert record.main(["--out", str(path), "--model", "mlp", "--trials", "2", "--max-iterations", "45"]) == 0
    assert [each.trial for each in read(path)] == [1, 2] and path.read_text().startswith(lines)
