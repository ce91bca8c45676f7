"""What a driver of an app uses: the writer of orders, the reports of trials, the app file that it submits."""

import json
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eunomia.errors import EunomiaError, InputError
from eunomia_hpo_adapters.driven_app import DrivenApp
from eunomia_hpo_adapters.order_writer import OrderWriter
from eunomia_hpo_adapters.trial_orders import MOST_LINE_BYTES, End, OrderReader, Pause, Resume, Start, Stop
from eunomia_hpo_adapters.trial_reports import TrialReports

HOLDS = (
    "import sys, pathlib, time, eunomia_hpo_adapters.order_writer as w; a = w.OrderWriter(pathlib.Path(sys.argv[1]))"
)


def test_what_is_written_is_what_an_app_reads(tmp_path: Path) -> None:
    with OrderWriter(tmp_path / "orders") as orders:
        assert [orders.start({"lr": 0.1, "text": "größer\n"}), orders.start({})] == [1, 2]
        orders.pause(1)
        orders.resume(1)
        orders.stop(2)
        orders.end()
    read, errors = OrderReader(tmp_path / "orders").read()
    assert not errors
    assert [one.order for one in read] == [
        Start(trial=1, parameters={"lr": 0.1, "text": "größer\n"}), Start(trial=2), Pause(trial=1), Resume(trial=1),
        Stop(trial=2), End(),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "rule"),
    [
        ({"lr": float("nan")}, "must be finite"),
        ({"layers": [1]}, "must be a number"),
        ({"a b": 1}, "named 'a b'"),
        ({"seed": 1}, "named 'seed'"),
        ({"text": "x" * MOST_LINE_BYTES}, f"less than {MOST_LINE_BYTES} bytes"),
    ],
)
def test_a_trial_that_the_app_would_refuse_is_not_written(
    tmp_path: Path, parameters: dict[str, object], rule: str
) -> None:
    with OrderWriter(tmp_path / "orders") as orders:
        with pytest.raises(InputError, match=rule):
            orders.start(parameters)  # type: ignore[arg-type]
        assert orders.start({}) == 1
        for order in (orders.pause, orders.resume, orders.stop):
            with pytest.raises(InputError, match="one of the 1 that were started, but got 2"):
                order(2)


def test_a_file_has_one_driver_and_is_free_once_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    words = [sys.executable, "-c", f"{HOLDS}; a.start({{}}); print('has it', flush=True); time.sleep(60)", str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None and driver.stdout.readline() == b"has it\n"
        with pytest.raises(InputError, match=f"one driver at a time, but got a second one .{path}"):
            OrderWriter(path, started=1)
        driver.send_signal(signal.SIGKILL)
    with pytest.raises(InputError, match="the 0 trials that its driver has started, but got 1"):
        OrderWriter(path)
    with OrderWriter(path, started=1) as orders:
        assert orders.start({}) == 2


def test_a_pickled_driver_goes_on_with_its_file(tmp_path: Path) -> None:
    orders = OrderWriter(tmp_path / "orders")
    orders.start({})
    kept = pickle.dumps(orders)
    orders.close()
    again = pickle.loads(kept)
    assert again.start({}) == 2
    again.close()
    with pytest.raises(InputError, match="the 1 trials that its driver has started, but got 2"):
        pickle.loads(kept).start({})


def test_reports_are_read_once_over_all_starts_of_a_trial(tmp_path: Path) -> None:
    output = tmp_path / "output"
    reports = TrialReports(tmp_path, "epoch")
    assert reports.poll() == []
    output.mkdir()
    first, second = output / "a1-i1-g1.here.stdout.log", output / "a1-i2-g1.here.stdout.log"
    line = "[tune-metric]: " + json.dumps({"epoch": 1, "loss": 0.5, "st_worker_timestamp": 7.0}) + "\n"
    first.write_text("hello\n" + line[:20])
    assert reports.poll() == []
    first.write_text("hello\n" + line)
    assert reports.poll() == [{"epoch": 1, "loss": 0.5, "st_worker_timestamp": 7.0}]
    second.write_text(
        "".join(f'[tune-metric]: {{"epoch": {epoch}, "loss": 0.1}}\n' for epoch in (1, 2))
        + '[tune-metric]: {nonsense}\n[tune-metric]: {"loss": 3}\n[tune-metric]: {"epoch": "x"}\n'
        + '[tune-metric]: {"epoch": 3}\n'
    )
    before = time.time()
    assert [report["epoch"] for report in reports.poll()] == [1, 2, 3]
    assert before <= reports.poll()[1]["st_worker_timestamp"] <= time.time()
    assert pickle.loads(pickle.dumps(reports)).poll() == reports.reports
    assert [report.get("epoch") for report in TrialReports(tmp_path).poll()] == [1, 1, 2, None, "x", 3]


@pytest.mark.parametrize(
    ("tuner", "rule"),
    [
        ('[tuner]\nkind = "hyperband"\n', r'kind must be "external", or \[tuner\] be left out, but got "hyperband"'),
        ("[tuner]\nseed = 3\n", 'but got "none"'),
        ('[tuner]\nkind = "external"\n', "orders must be the absolute path of a file, but got None"),
        ("tuner = 3\n", 'but got "3"'),
    ],
)
def test_an_app_with_another_tuner_cannot_be_driven(tmp_path: Path, tuner: str, rule: str) -> None:
    (tmp_path / "app.toml").write_text(
        f'{tuner if tuner[0] == "t" else ""}[app]\nname = "x"\n{tuner if tuner[0] == "[" else ""}'
    )
    with pytest.raises(InputError, match=rule):
        DrivenApp(tmp_path / "app.toml", state_dir=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["app.toml"]


def test_without_an_arbiter_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text('[app]\nname = "x"\n[job]\ncommand = "true"\n')
    with pytest.raises(EunomiaError, match="arbiter"):
        DrivenApp(tmp_path / "app.toml", state_dir=tmp_path / "state")
    assert [path.name for path in tmp_path.iterdir()] == ["app.toml"]
    with pytest.raises(InputError, match="readable text"):
        DrivenApp(tmp_path / "none.toml", state_dir=tmp_path)


def test_orders_of_an_earlier_search_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    with OrderWriter(path) as orders:
        orders.start({})
    tuner = f'[tuner]\nkind = "external"\norders = "{path}"\n'
    (tmp_path / "app.toml").write_text(f'[app]\nname = "x"\n{tuner}')
    with pytest.raises(InputError, match="the 0 trials that its driver has started, but got 1"):
        DrivenApp(tmp_path / "app.toml", state_dir=tmp_path)
