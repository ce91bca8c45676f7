"""A script that uses the training helper wrongly fails its job at once, since no restart cures it."""

import sys
from pathlib import Path

import pytest
from tests.appmaster import serving_lab
from tests.appmaster.serving_lab import activity, client, eventually, supervisor

from eunomia_appmaster.launcher.container import Container
from eunomia_appmaster.launcher.live_words import MOST_WHY
from eunomia_appmaster.protocol import launcher_pb2 as pb

_floors = serving_lab.floors

SCRIPT = """
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from eunomia_appmaster import training
run = training.attach()
data, own = TensorDataset(torch.randn(40, 4), torch.randn(40, 1)), nn.Linear(4, 1)
model, optimizer, loader = run.prepare(own, torch.optim.SGD(own.parameters(), lr=0.05), DataLoader(data, batch_size=8))
{misuse}
for x, y in run.steps(loader, 10**6):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""
NO_GROUP = (
    'a script that uses torch\'s default process group must be started with elastic = "restart", '
    "but got a live gang, which has none (torch.distributed)"
)
NOT_PREPARED = "steps() must be given a prepared loader, but got list (steps())"


def _app(folder: Path, misuse: str, *, elastic: str) -> Path:
    (folder / "misuse.py").write_text(SCRIPT.format(misuse=misuse))
    job = f"[job]\ncommand = '{sys.executable} misuse.py'\nslots = {{ min = 1, max = 2 }}\nelastic = '{elastic}'\n"
    file = folder / "misuse.toml"
    file.write_text(f"[app]\nname = 'misuse'\n{job}")
    return file


@pytest.mark.slow
@pytest.mark.parametrize(
    ("misuse", "elastic", "options", "why"),
    [
        pytest.param("dist.barrier()", "live", ("--no-zygote",), NO_GROUP, id="all workers"),
        pytest.param("run.is_main and dist.barrier()", "live", (), NO_GROUP, id="one of two workers, forked"),
        pytest.param("list(run.steps([], 3))", "restart", ("--no-zygote",), NOT_PREPARED, id="a gang of fixed size"),
    ],
)
def test_a_job_whose_script_uses_the_helper_wrongly_is_started_once(
    tmp_path: Path, misuse: str, elastic: str, options: tuple[str, ...], why: str
) -> None:
    options = (*options, "--stop-seconds", "2")
    with supervisor(tmp_path, policy="max_min", launcher_options=options) as made, client(made) as arbiter:
        arbiter.submit(_app(tmp_path, misuse, elastic=elastic))
        eventually(lambda: arbiter.app("misuse").state == "failed", "its end")
        events = activity(made, "misuse")
        assert [line["event"] for line in events].count("start") == 1
        assert [line["why"] for line in events if line["event"] == "failed"] == [why]
        said = arbiter.explain("misuse/1")
        assert (said.state, said.text) == ("failed", why)


def test_a_worker_that_has_ended_with_such_an_error_is_known_by_its_sentence(tmp_path: Path) -> None:
    container = Container(pb.ContainerStatus(container_id="a.1.1.0", state=pb.RUNNING), tmp_path)
    container.heard("misused", {"why": NO_GROUP})
    assert container.status.misuse == NO_GROUP
    container.heard("misused", {"why": "x" * 1000})
    assert len(container.status.misuse) == MOST_WHY
    with pytest.raises(KeyError):
        container.heard("misused", {})
