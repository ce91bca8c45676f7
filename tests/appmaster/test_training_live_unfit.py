"""Scripts that cannot change live say so once, and train at their size as under ``elastic = "restart"``."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.appmaster.live_lab import live_job
from tests.appmaster.training_lab import Lab

from eunomia.errors import InputError
from eunomia_appmaster.training.changes import Membership
from eunomia_appmaster.training.environment import Environment
from eunomia_appmaster.training.live import groups
from eunomia_appmaster.training.live.change_orders import ChangeOrders
from eunomia_appmaster.training.live.gang import LiveGang
from eunomia_appmaster.training.orders import OrderClient

SCRIPT = """
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from eunomia_appmaster import training
run = training.attach()
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
data = TensorDataset(torch.randn(40, 4).double(), torch.randn(40, 1).double())
loader = DataLoader(data, batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
ddp, other = {{}}, None
{before}
model, optimizer, loader = run.prepare(model, optimizer, loader, ddp=ddp)
{after}
for x, y in {loop}:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
if run.is_main:
    torch.save({{"size": run.world_size, "step": run.step, "kind": type(model).__name__}}, "final.pt")
"""


def script(folder: Path, before: str = "", after: str = "", loop: str = "run.steps(loader, 20)") -> Path:
    path = folder / "script.py"
    path.write_text(SCRIPT.format(before=before, after=after, loop=loop))
    return path


@pytest.fixture(scope="module")
def lab() -> Any:
    return Lab.shared()


UNFIT = {
    "ddp = {'static_graph': True}": "DDP is given static_graph",
    "ddp = {'broadcast_buffers': False}": "DDP is given broadcast_buffers",
    "model = nn.SyncBatchNorm.convert_sync_batchnorm(model)": "SyncBatchNorm cannot change its workers",
    "model = torch.compile(model, backend='eager')": "a compiled model cannot change its workers",
    "model.compile(backend='eager')": "a compiled model cannot change its workers",
    "import torch.distributed as dist\n"
    "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)": "the script has a process group",
}


@pytest.mark.parametrize(
    "before", [next(iter(UNFIT)), *(pytest.param(each, marks=pytest.mark.slow) for each in list(UNFIT)[1:])]
)
def test_a_script_that_cannot_change_live_says_so_once_and_trains(lab: Lab, tmp_path: Path, before: str) -> None:
    alone = "process group" in UNFIT[before] or "SyncBatchNorm" in before
    with live_job(lab, script(tmp_path, before), tmp_path / "run") as job:
        job.repairs = False
        job.start(1 if alone else 2)
        assert set(job.finish().values()) == {0}, job.output()
        whys = {each["why"] for each in job.said("unfit")}
    (why,) = whys
    assert why.startswith(UNFIT[before])
    final = torch.load(tmp_path / "run" / "final.pt", weights_only=True)
    assert final["step"] == 20
    assert final["kind"] != "LiveModel"


@pytest.mark.slow
def test_a_sharded_model_cannot_change_live(lab: Lab, tmp_path: Path) -> None:
    # A real one needs a GPU.
    before = "model.__class__ = type('FullyShardedDataParallel', (type(model),), dict())"
    with live_job(lab, script(tmp_path, before), tmp_path / "run") as job:
        job.repairs = False
        job.start(1)
        assert job.finish() == {"c0": 0}, job.output()
        (unfit,) = job.said("unfit")
    assert unfit["why"] == "FullyShardedDataParallel cannot change its workers"


GROUP = """
import torch.distributed as dist
store = dist.FileStore(os.path.abspath('group'), run.world_size)
dist.init_process_group('gloo', store=store, rank=run.rank, world_size=run.world_size)
group = dist.group.WORLD
def summed(batch):
    count = torch.ones(1)
    dist.all_reduce(count, group=group)
    assert count.item() == 2.0
    return batch
"""
NO_GROUP = (
    'a script that uses torch\'s default process group must be started with elastic = "restart", '
    "but got a live gang, which has none (torch.distributed)"
)
ZERO = """
from torch.distributed.optim import ZeroRedundancyOptimizer
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.05)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "error"),
    [
        (ZERO, NO_GROUP),
        (
            GROUP + ZERO,
            "prepare() must be given optimizers of which each worker has the whole state, but got "
            "ZeroRedundancyOptimizer (prepare())",
        ),
    ],
    ids=["no group", "own group"],
)
def test_a_sharded_optimizer_is_refused(lab: Lab, tmp_path: Path, before: str, error: str) -> None:
    with live_job(lab, script(tmp_path, before), tmp_path / "run") as job:
        job.repairs = False
        job.env["GLOO_SOCKET_IFNAME"] = "lo"
        job.start(2)
        assert set(job.finish().values()) == {1}
        assert error in job.output()


USES = {
    "barrier": "import torch.distributed as dist\ndist.barrier()",
    "rank": "import torch.distributed as dist\nprint(dist.get_rank())",
    "all-reduce in the loop": "import torch.distributed as dist\nx = next(iter(loader))[0]\ndist.all_reduce(x)",
}


@pytest.mark.parametrize("use", ["barrier", *(pytest.param(one, marks=pytest.mark.slow) for one in list(USES)[1:])])
def test_a_use_of_torchs_default_group_is_refused_with_the_way_out(lab: Lab, tmp_path: Path, use: str) -> None:
    with live_job(lab, script(tmp_path, after=USES[use]), tmp_path / "run") as job:
        job.repairs = False
        job.start(2)
        assert set(job.finish().values()) == {1}
        assert NO_GROUP in job.output()


def test_a_communication_hook_is_refused(lab: Lab, tmp_path: Path) -> None:
    text = script(tmp_path, after="model.register_comm_hook(None, lambda state, bucket: None)")
    with live_job(lab, text, tmp_path / "run") as job:
        job.repairs = False
        job.start(1)
        assert job.finish() == {"c0": 1}
        assert 'a script with a communication hook must be started with elastic = "restart"' in job.output()


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        ("[*loader]", "its steps are not in a loop over a prepared loader"),
        pytest.param(
            "(pair for pair, _ in zip(run.steps(loader, 20), run.prepare(DataLoader(data, 8))))",
            "it reads two loaders at once",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_loop_that_has_no_boundary_keeps_its_workers(lab: Lab, tmp_path: Path, loop: str, why: str) -> None:
    with live_job(lab, script(tmp_path, loop=loop), tmp_path / "run") as job:
        job.repairs = False
        job.start(1)
        job.finish()
        (unfit,) = job.said("unfit")
    assert unfit["why"].startswith(why)


def test_a_script_that_makes_a_group_of_its_own_later_keeps_its_workers_and_says_so_once(
    lab: Lab, tmp_path: Path
) -> None:
    loop = "(summed(batch) for batch in run.steps(loader, 60))"
    with live_job(lab, script(tmp_path, after=GROUP, loop=loop), tmp_path / "run") as job:
        job.repairs = False
        job.env["GLOO_SOCKET_IFNAME"] = "lo"
        job.start(2)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        job.order(1)
        assert set(job.finish().values()) == {0}, job.output()
        assert job.said("unfit") == [{"generation": 0, "why": "the script has a process group of its own"}] * 2
    assert torch.load(tmp_path / "run" / "final.pt", weights_only=True)["size"] == 2


def test_gradients_that_a_script_carries_over_a_step_are_dropped_at_a_change_on_all_workers(
    lab: Lab, tmp_path: Path
) -> None:
    before = "import json, time\noptimizer.zero_grad = lambda: None"
    after = """
rows = open('rows.' + os.environ['EUNOMIA_CONTAINER_ID'].partition('@')[0], 'w', buffering=1)
def seen(batch):
    carries = [each.grad is not None for each in model.parameters()]
    total = float(sum(each.double().sum() for each in model.parameters()))
    rows.write(json.dumps([run.step, run.world_size, any(carries), total.hex()]) + chr(10))
    time.sleep(0.02)
    return batch
"""
    loop = "(seen(batch) for batch in run.steps(loader, 80))"
    with live_job(lab, script(tmp_path, before, after, loop), tmp_path / "run") as job:
        job.start(1)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        for size in (2, 1):
            job.order(size)
            assert job.settle()["size"] == size
        job.finish()
        assert not job.said("unfit")
        files = [path.read_text().splitlines() for path in (tmp_path / "run").glob("rows.*")]
    rows = [json.loads(line) for lines in files for line in lines]
    of_two = sorted({step for step, size, _, _ in rows if size == 2})
    dropped = {step for step, _, carries, _ in rows if not carries}
    assert dropped == {0, of_two[0], of_two[-1] + 1}, "else they are carried on"
    for step in of_two:
        assert len({total for at, size, _, total in rows if (at, size) == (step, 2)}) == 1, step


@pytest.mark.parametrize("elastic", ["live", "restart"])
def test_an_object_without_a_state_is_refused_in_either_mode(lab: Lab, tmp_path: Path, elastic: str) -> None:
    text = script(tmp_path, before="run.prepare(object())")
    with live_job(lab, text, tmp_path / "run") as job:
        job.repairs = False
        job.env["EUNOMIA_ELASTIC"] = elastic
        job.start(1)
        assert job.finish() == {"c0": 1}
        rule = "prepare() must be given models, loaders, or objects with state_dict and load_state_dict, but got object"
        assert f"{rule} (prepare())" in job.output()


@pytest.mark.slow
def test_batches_smaller_than_the_gang_are_trained_as_on_one_worker(lab: Lab, tmp_path: Path) -> None:
    finals = []
    for name, sizes in (("fixed", ()), ("live", (4, 3))):
        text = Path(__file__).with_name("live_training_script.py")
        args = ("--steps", "24", "--samples", "5", "--batch-size", "2", "--seconds", "0.03")
        with live_job(lab, text, tmp_path / name, *args) as job:
            job.start(1)
            job.until(lambda job=job: job.confirmed, 60.0, "it did not start")
            for size in sizes:
                job.order(size)
                assert job.settle()["size"] == size
            assert set(job.finish().values()) <= {0, 75}, job.output()
        finals.append(torch.load(tmp_path / name / "final.pt", weights_only=True)["model"])
    assert all(torch.allclose(finals[0][name], finals[1][name], rtol=1e-10, atol=1e-12) for name in finals[0])


def test_a_live_worker_without_its_store_or_itself_is_refused() -> None:
    live = Environment(live=True, container_id="a", members=("a",), store="nowhere")
    with pytest.raises(InputError, match="EUNOMIA_STORE must be host:port, but got 'nowhere'"):
        LiveGang(live, ChangeOrders(NoLauncher()))
    with pytest.raises(InputError, match="EUNOMIA_MEMBERS must have the worker's own EUNOMIA_CONTAINER_ID"):
        LiveGang(replace(live, container_id="b"), ChangeOrders(NoLauncher()))


def test_an_order_that_is_no_change_is_ignored() -> None:
    wrong = [{"generation": "1", "members": ["a"]}, {"generation": 1, "members": []}, {"generation": 1}, 7, None]
    wrong.append({"generation": 1, "members": ["a", "a"]})
    launcher = NoLauncher([{"change": each} for each in wrong] + [{"change": {"generation": 2, "members": ["a"]}}])
    launcher.orders.append({"order": "suspend"})
    orders = ChangeOrders(launcher)
    assert orders.changes() == [Membership(2, ("a",))]
    assert orders.stops()
    assert orders.poll() == [{"order": "suspend"}]


def test_what_torch_calls_private_is_used_in_one_module_with_versions_that_were_seen() -> None:
    version = ".".join(torch.__version__.split(".")[:2])
    assert version in groups.SEEN_WITH, f"run the tests of live changes with torch {version}, slow ones too, and add it"
    folder = Path(groups.__file__).parent
    private = re.compile(r"ProcessGroup(Gloo|NCCL)|_execution_engine|_set_default_timeout|\bdist\._|\btorch\._")
    users = {path.name for path in folder.parent.rglob("*.py") if private.search(path.read_text())}
    assert users == {"groups.py"}


class EndsLate:
    """An operation that ends just after the time for which it was waited for, well or not."""

    def __init__(self, fails: bool) -> None:
        self.fails, self.waits = fails, 0

    def wait(self, *_: Any) -> None:
        self.waits += 1
        if self.waits == 1 or self.fails:
            raise RuntimeError("timed out" if self.waits == 1 else "connection closed")

    def is_completed(self) -> bool:
        return True


def test_an_operation_that_ends_as_its_worker_looks_up_has_not_failed() -> None:
    late = EndsLate(fails=False)
    groups._Work(late, cast("Any", None)).wait()
    assert late.waits == 2
    with pytest.raises(groups.PeerLostError, match="connection closed"):
        groups._Work(EndsLate(fails=True), cast("Any", None)).wait()


class NoLauncher(OrderClient):
    """A client that has orders already."""

    def __init__(self, orders: list[dict[str, Any]] | None = None) -> None:
        self.orders = orders or []

    def poll(self) -> list[dict[str, Any]]:
        orders, self.orders = self.orders, []
        return orders


@pytest.mark.slow
def test_a_newcomer_has_its_peers_state_before_its_first_loop(lab: Lab, tmp_path: Path) -> None:
    before = "import json, time\nfrom pathlib import Path\nrun.state.setdefault('lr', 0.5)"
    after = "Path('state.' + os.environ['EUNOMIA_CONTAINER_ID'].partition('@')[0]).write_text(json.dumps(run.state))"
    loop = "(run.state.update(lr=0.25) or time.sleep(0.05) or batch for batch in run.steps(loader, 60))"
    with live_job(lab, script(tmp_path, before, after, loop), tmp_path / "run") as job:
        job.start(1)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        job.run_for(1.5)
        job.order(2)
        assert job.settle()["size"] == 2
        assert set(job.finish().values()) == {0}, job.output()
    assert (tmp_path / "run" / "state.c0").read_text() == '{"lr": 0.5}'
    assert (tmp_path / "run" / "state.c1").read_text() == '{"lr": 0.25}'


@pytest.mark.slow
def test_a_newcomer_that_reads_another_loader_fails_alone(lab: Lab, tmp_path: Path) -> None:
    before = "import time\nfirst = os.environ['EUNOMIA_GENERATION'] == '0'"
    after = "loaders = loader, run.prepare(DataLoader(data, batch_size=4))"
    loop = "(time.sleep(0.05) or batch for batch in run.steps(loaders[first], 60))"
    with live_job(lab, script(tmp_path, before, after, loop), tmp_path / "run") as job:
        job.start(1)
        job.until(lambda: job.confirmed, 60.0, "it did not start")
        job.order(2)
        codes = job.finish()
        assert codes["c0"] == 0, job.output()
        (unfit,) = job.said("unfit")
    assert unfit["why"].startswith("its first loop is over another loader")
