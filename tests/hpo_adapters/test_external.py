"""The tuner that follows a file of orders, and the reader of that file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tuner_lab import search

from eunomia.errors import InputError
from eunomia_appmaster.tuner import Speed, Tuner, forecast
from eunomia_hpo_adapters.external import External, ExternalOptions
from eunomia_hpo_adapters.trial_orders import MOST_LINE_BYTES, End, OrderReader, Pause, Resume, Start, Stop
from eunomia_testbed.simulator.apps.searches import make_tuner
from eunomia_testbed.workload import SimulatedSearch


class Desk:
    """A tuner and the file of orders that it follows."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "orders.jsonl"
        self.tuner = self.made()

    def made(self) -> External:
        return External.create(search(1, space={}), ExternalOptions(orders=str(self.file)))

    def write(self, text: str) -> list[str]:
        """Append text; the errors of which the tuner tells."""
        with self.file.open("a") as file:
            file.write(text)
        return [str(error) for error in self.tuner.poll()[1]]

    def order(self, *orders: Start | Pause | Resume | Stop | End) -> list[str]:
        return self.write("".join(order.line() for order in orders))

    def running(self) -> list[int]:
        return [run.trial for run in self.tuner.runs()]

    def answers(self, tuner: Tuner) -> list[Any]:
        return [tuner.trials(), tuner.runs(), tuner.ended(), tuner.is_done(), tuner.best(), tuner.state()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_tuner_implements_the_protocol(desk: Desk) -> None:
    assert isinstance(desk.tuner, Tuner)


def test_trials_run_pause_resume_and_stop_as_ordered(desk: Desk) -> None:
    assert desk.tuner.poll() == (False, ())  # no file yet
    assert desk.order(Start(trial=1, parameters={"lr": 0.1}), Start(trial=2, parameters={"lr": 0.2})) == []
    assert desk.running() == [1, 2] and desk.tuner.num_phases() == 1
    assert desk.order(Pause(trial=1)) == [] and desk.running() == [2]
    assert [info.trial for info in desk.tuner.jobs_in_phase(0, {})] == [2]
    assert desk.order(Stop(trial=2)) == [] and desk.running() == [] and list(desk.tuner.ended()) == [2]
    assert desk.tuner.num_phases() == 0 and not desk.tuner.is_done()
    assert forecast(desk.tuner, {}, {}, otherwise=Speed(seconds_per_iteration=1.0)) is not None
    assert desk.order(Resume(trial=1)) == [] and desk.running() == [1]
    desk.tuner.on_finished(1, 64, 0.9)
    assert not desk.tuner.is_done()
    assert desk.order(End()) == [] and desk.tuner.is_done() and desk.tuner.best() == 1


def test_end_ends_trials_that_run_and_a_search_without_any(desk: Desk) -> None:
    assert desk.order(Start(trial=1), Start(trial=2), Pause(trial=2), End()) == []
    assert list(desk.tuner.ended()) == [1, 2] and desk.running() == []
    assert desk.tuner.poll() == (False, ())


def test_a_half_written_line_is_read_once_it_is_whole(desk: Desk) -> None:
    line = Start(trial=1, parameters={"text": "größer"}).line().encode()
    for end in range(len(line)):
        desk.file.write_bytes(line[:end])
        assert desk.tuner.poll() == (False, ())
    desk.file.write_bytes(line)
    assert desk.tuner.poll()[0] and desk.tuner.trials()[0].parameters == {"text": "größer"}


def test_a_restart_anywhere_changes_nothing(desk: Desk) -> None:
    orders = [Start(trial=1), Start(trial=2), Pause(trial=1), Start(trial=3), Stop(trial=2), Resume(trial=1), End()]
    for order in orders:
        again = desk.made()
        again.restore(json.loads(json.dumps(desk.tuner.state())))
        assert desk.answers(again) == desk.answers(desk.tuner)
        assert desk.order(order) == []
        again.poll()
        assert desk.answers(again) == desk.answers(desk.tuner)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("garbage", "Invalid JSON"),
        ("[1]", "should be an object"),
        ('{"order": "dance", "trial": 2}', "'dance'"),
        ('{"order": "pause"}', "trial: Field required"),
        ('{"order": "pause", "trial": 0}', "trial"),
        ('{"order": "pause", "trial": true}', "trial"),
        ('{"order": "pause", "trial": 7}', "trial must be one of the 1 that were started"),
        ('{"order": "start", "trial": 1}', "the next trial to start must be 2"),
        ('{"order": "start", "trial": 3}', "the next trial to start must be 2"),
        ('{"order": "start", "trial": 2, "more": 1}', "more"),
        ('{"order": "start", "trial": 2, "parameters": {"lr": [1]}}', "parameters.lr: a parameter must be a number"),
        ('{"order": "start", "trial": 2, "parameters": {"lr": null}}', "parameters.lr: a parameter must be a number"),
        ('{"order": "start", "trial": 2, "parameters": {"lr": NaN}}', "parameters.lr: a parameter must be finite"),
        ('{"order": "start", "trial": 2, "parameters": {"lr": "\\u0000"}}', "must be printable"),
        ('{"order": "start", "trial": 2, "parameters": {"args": 1}}', "named 'args'"),
        ('{"order": "start", "trial": 2, "parameters": {"a b": 1}}', "named 'a b'"),
        ('{"order": "pause", "trial": 1' + " " * MOST_LINE_BYTES + "}", f"less than {MOST_LINE_BYTES} bytes"),
    ],
    ids=lambda text: text[:60].strip(),
)
def test_a_bad_line_is_named_and_the_lines_around_it_are_followed(desk: Desk, line: str, why: str) -> None:
    (error,) = desk.write(f"{Start(trial=1).line()}\n{line}\n{Pause(trial=1).line()}")
    assert why in error and f"({desk.file}, line 3)" in error and len(error) < 600
    assert [trial.number for trial in desk.tuner.trials()] == [1] and desk.running() == []


def test_orders_about_an_ended_trial_have_no_effect(desk: Desk) -> None:
    desk.order(Start(trial=1))
    desk.tuner.on_failed(1)
    assert desk.order(Pause(trial=1), Resume(trial=1), Stop(trial=1)) == []
    assert list(desk.tuner.ended()) == [1] and desk.running() == []


def test_orders_after_the_end_are_not_followed(desk: Desk) -> None:
    (error,) = desk.order(Start(trial=1), End(), Start(trial=2))
    assert "no order may follow end" in error and "line 3" in error
    assert len(desk.tuner.trials()) == 1


def test_a_file_that_two_drivers_write_starts_no_trial_twice(desk: Desk) -> None:
    errors = desk.order(Start(trial=1, parameters={"lr": 1}), Start(trial=1, parameters={"lr": 2}), Start(trial=2))
    assert len(errors) == 1 and "the next trial to start must be 2" in errors[0]
    assert [trial.parameters for trial in desk.tuner.trials()] == [{"lr": 1}, {}]


def test_a_file_that_shrinks_or_is_none_is_told_once(desk: Desk, tmp_path: Path) -> None:
    desk.order(Start(trial=1))
    desk.file.write_text("")
    (error,) = desk.tuner.poll()[1]
    assert "must only grow" in str(error)
    assert desk.tuner.poll() == (False, ()) and desk.running() == [1]
    for place in (tmp_path, tmp_path / "pipe"):
        if place != tmp_path:
            os.mkfifo(place)
        reader = OrderReader(place)
        assert ["must be an ordinary file" in str(error) for error in reader.read()[1]] == [True]
        assert reader.read() == ((), ())


def test_a_search_cannot_have_what_orders_bring(tmp_path: Path) -> None:
    options = ExternalOptions(orders=str(tmp_path / "orders"))
    for wrong, rule in (
        (search(1), r"no \[space\]"),
        (search(3, space={}), "trials must not be given"),
        (search(1, space={}, sampler="grid"), "sampler must not be given"),
    ):
        with pytest.raises(InputError, match=rule):
            External.create(wrong, options)


@pytest.mark.parametrize("path", ["orders.jsonl", "", 3, "/tmp/\n"])
def test_orders_must_be_an_absolute_path(path: object) -> None:
    with pytest.raises(ValueError, match="orders must be the absolute path of a file"):
        ExternalOptions.model_validate({"orders": path})


def test_a_simulation_refuses_it(tmp_path: Path) -> None:
    simulated = SimulatedSearch(tuner="external", options={"orders": str(tmp_path / "orders")})
    with pytest.raises(InputError, match=r'not follow what happens outside, but got "external"'):
        make_tuner(simulated, [(1, 1)], [10.0], 0)
