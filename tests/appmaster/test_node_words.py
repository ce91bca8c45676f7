"""Jobs that lack machines, or whose nodes drain or fall silent, name them; so do apps, nodes and health."""

import importlib.util
import sys
import urllib.request
from collections.abc import Iterator
from json import loads
from pathlib import Path
from typing import Any

import grpc
import pytest

from eunomia.journal.journal import read_journal
from eunomia_appmaster.commands import apps as apps_command
from eunomia_appmaster.commands import explain as explain_command
from eunomia_appmaster.commands import nodes as nodes_command
from eunomia_appmaster.commands import submit as submit_command
from eunomia_appmaster.commands.console import missing
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import launcher_pb2 as lpb
from eunomia_appmaster.service import node_leases
from eunomia_appmaster.service.layout import MACHINE_NOTE
from eunomia_appmaster.service.metrics import Meters
from eunomia_appmaster.service.metrics_server import MetricsServer

_spec = importlib.util.spec_from_file_location("service_lab", Path(__file__).parent / "service_lab.py")
lab_module = sys.modules.setdefault("service_lab", importlib.util.module_from_spec(_spec))
_spec.loader.exec_module(lab_module)
eventually, Beating, Launcher, gang = (
    lab_module.eventually,
    lab_module.Beating,
    lab_module.Launcher,
    lab_module.gang,
)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Any]:
    with lab_module.two_nodes(tmp_path, 600.0) as made:
        yield made


def explained(two: Any, job: str) -> pb.Explanation:
    (said,) = two.call("Explain", pb.ExplainRequest(job=job)).explanations
    return said


def waiting(two: Any, name: str, gpus: int) -> Any:
    master = two.lab.master(name, str(gpus))
    master.register()
    master.beat(jobs_added=[gang(f"{name}/1", gpus)])
    return master


def refused_gang(two: Any, gpus: int) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        two.lab.submit("x", str(gpus))
    return str(caught.value.details())


def test_a_gang_that_fits_only_the_former_size_of_the_cluster_waits_with_that_reason(two: Any) -> None:
    assert two.remove(now=True).left
    two.quiet()
    two.restart()  # the journal has how large the cluster was
    answer = two.lab.submit("ana", "4")
    lacks = "it needs 4 slots, and the cluster has 2; it had 4 at once"
    assert answer.waits_for == lacks
    assert submit_command.too_wide(answer, ()) == [f"  No job of it can start: {lacks}."]
    assert two.lab.app("ana").waits_for == lacks
    shown = apps_command.lines(two.lab.seen())
    assert f"ana: no job of it can start: {lacks}" in shown
    assert apps_command.facts(two.lab.seen())["apps"][0]["waits_for"] == lacks
    master = lab_module.Master(two.lab, "ana")
    master.register()
    master.beat(jobs_added=[gang("ana/1", 4)])
    said = explained(two, "ana/1")
    assert list(said.nodes) == [lacks]
    assert f"Nodes      {lacks}" in explain_command.screen([said], {})
    assert explain_command.facts(said)["nodes"] == [lacks]
    # Machines come: it starts, and nothing is said any more.
    two.annex = Launcher(two.lab, 2, "a later one", "annex")
    two.annex.register()
    two.beating = Beating(two.annex)
    master.call()
    master.register()
    master.beat_until(lambda: master.leases)
    assert two.lab.app("ana").waits_for == ""
    assert list(explained(two, "ana/1").nodes) == []


def test_a_gang_larger_than_the_cluster_ever_was_is_refused_unless_it_waits_for_machines(two: Any) -> None:
    why = refused_gang(two, 5)
    assert "or the app must wait for machines (--wait-for-machines)" in why
    assert "a gang of 5 where at most 4 slots were at once" in why
    two.remove(now=True)
    two.quiet()
    later = Launcher(two.lab, 2, "a later one", "annex")
    later.register()
    two.annex, two.beating = later, Beating(later)
    assert "at most 4 slots were at once" in refused_gang(two, 5), "numbers of machines that left count no more"
    answer = two.lab.submit("ana", "5", wait_for_machines=True)
    assert answer.waits_for == "it needs 5 slots, and the cluster has 4, and never had more than 4 at once"
    barn = Launcher(two.lab, 1, "of barn", "barn")
    barn.register()
    beating = Beating(barn)
    try:
        master = lab_module.Master(two.lab, "ana")
        master.register()
        master.beat_until(lambda: master.leases, jobs_added=[gang("ana/1", 5)])
    finally:
        beating.end()
    with read_journal(two.lab.arbiter.settings.journal) as journal:
        assert journal.notes(MACHINE_NOTE)["1"]["size"] == 4


def test_a_node_that_returns_with_another_type_does_not_enlarge_the_cluster(two: Any) -> None:
    two.quiet()
    two.annex.register(slots=[lpb.Slot(index=at, gpu_type="fast") for at in range(2)])
    eventually(lambda: two.lab.arbiter.service.nodes.layout.gpus_of("annex") == [4, 5], "it is another machine")
    assert two.lab.arbiter.service.upkeep.most_slots == 4
    assert "at most 4 slots were at once" in refused_gang(two, 5)


def test_missing_slots_do_not_count_as_slots_of_the_cluster(two: Any) -> None:
    two.quiet()
    two.annex.register(slots=[lpb.Slot(index=0, gpu_type="cpu")])
    two.beating = Beating(two.annex)
    eventually(lambda: health(two).missing_slots, "its other slot is missing")
    barn = Launcher(two.lab, 2, "of barn", "barn")
    barn.register()
    beating = Beating(barn)
    try:
        eventually(lambda: two.lab.arbiter.service.upkeep.most_slots == 5, "without the missing slot")
        assert "at most 5 slots were at once" in refused_gang(two, 6)
        answer = two.lab.submit("ana", "5")
        assert answer.slots == 5
        two.quiet()
        two.annex.register()
        two.beating = Beating(two.annex)
        eventually(lambda: two.lab.arbiter.service.upkeep.most_slots == 6, "all are there")
    finally:
        beating.end()


def test_the_largest_size_of_the_cluster_survives_a_removal_and_a_restart(
    two: Any,
) -> None:
    two.quiet()
    two.annex.register(slots=[lpb.Slot(index=0, gpu_type="cpu")])
    two.beating = Beating(two.annex)
    eventually(lambda: health(two).missing_slots, "its other slot is missing")
    two.restart()  # it registers with both slots, so that nothing is missing at the restarted arbiter
    two.quiet()
    two.annex.register(slots=[lpb.Slot(index=0, gpu_type="cpu")])
    two.beating = Beating(two.annex)
    eventually(lambda: health(two).missing_slots, "it is missing again")
    assert two.remove(now=True).left
    two.quiet()
    two.restart()
    assert two.lab.submit("ana", "4").waits_for == "it needs 4 slots, and the cluster has 2; it had 4 at once"


def test_missing_slots_are_listed_by_reason() -> None:
    gone = [
        pb.MissingSlot(node="n1", slot=2, gpu_type="cpu", cpus=True),
        pb.MissingSlot(node="n2", slot=1, gpu_type="slow", cpus=True),
        pb.MissingSlot(node="n3", slot=0, gpu_type="A100"),
    ]
    left_out, not_found = missing(gone).split("; slot n3/0 ")
    assert left_out == (
        "slots n1/2, n2/1 (cpu, slow) are left out: the launcher was started with fewer slots than before; "
        "a larger --slots or more of --slot-types uses them"
    )
    assert (
        not_found == "(A100) is missing: not found when the launcher started; a restart uses it again once it is there"
    )
    assert missing([]) == ""


def test_a_job_that_waits_for_a_draining_node_names_it(two: Any) -> None:
    two.call("DrainNode", pb.DrainNodeRequest(node="annex", why="ana: maintenance"))
    waiting(two, "ana", 4)
    said = explained(two, "ana/1")
    assert list(said.nodes) == [
        "it needs 4 slots, and 2 of 4 are there",
        "annex drains (ana: maintenance): no job starts on its 2 slots",
    ]
    assert two.lab.app("ana").waits_for == said.nodes[0]
    (annex,) = [node for node in health(two).nodes if node.node == "annex"]
    assert (annex.state, annex.why) == ("drained", "ana: maintenance")
    two.call("UndrainNode", pb.UndrainNodeRequest(node="annex"))
    assert list(explained(two, "ana/1").nodes) == []


def health(two: Any) -> pb.HealthResponse:
    return two.call("Health", pb.HealthRequest())


def test_a_job_on_a_draining_node_shows_when_its_lease_there_ends(two: Any) -> None:
    master = waiting(two, "ana", 4)
    master.beat_until(lambda: master.leases)
    master.beat()
    eventually(lambda: explained(two, "ana/1").state == "running", "it runs")
    said = explained(two, "ana/1")
    assert "Runs on    2 slots of annex, 2 slots of box7" in explain_command.screen([said], {})
    assert explain_command.facts(said)["slots_by_node"] == {"annex": 2, "box7": 2}
    assert any("1 slot of n1" in line for line in explain_command.screen(three_running(), {}))
    two.call("DrainNode", pb.DrainNodeRequest(node="annex", why="ana: maintenance"))
    (words,) = explained(two, "ana/1").nodes
    assert words.startswith("it runs on 2 slots of annex, which drains (ana: maintenance)")
    assert two.nodes()["annex"].state == "draining"


def test_a_job_is_known_although_its_app_master_has_not_added_it_yet(two: Any) -> None:
    two.lab.submit("ana", "1")
    said = explained(two, "ana/1")
    assert (said.job, said.state, said.text) == ("ana", "submitted", "its app master has not added any job yet")


def test_removing_a_node_warns_of_leases_without_an_end() -> None:
    without = pb.NodeView(node="b08", held=1, leaves=True)
    assert nodes_command.later(without).startswith(
        "1 of its slots is held without an end (eunomia nodes drain b08 --within 10m ends the leases there); it leaves"
    )
    ends = pb.NodeView(node="b08", held=3, leaves=True, ends_in_seconds=60.0)
    assert nodes_command.later(ends) == "3 of its slots are held; it leaves once it is empty (--now: at once)"
    assert nodes_command.later(pb.NodeView(node="b08", leaves=True)).startswith("what ran there is still ending; it l")


def test_drain_prints_which_jobs_it_waits_for_and_how_to_end_them_sooner(
    two: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    master = waiting(two, "ana", 4)
    master.beat_until(lambda: master.leases)
    master.beat()
    eventually(lambda: explained(two, "ana/1").state == "running", "it runs")
    at: dict[str, Any] = {"address": two.lab.arbiter.address, "state_dir": two.lab.arbiter.settings.state_dir}
    token = at["state_dir"] / "run" / "token"
    token.parent.mkdir(exist_ok=True)
    token.write_text(two.lab.arbiter.service.tokens.operator)
    token.chmod(0o600)
    nodes_command.drain("annex", **at)
    *rows, last = capsys.readouterr().out.splitlines()
    assert "2 of 2 still held (ana/1: 2), without an end" in rows[-1]
    assert last == (
        "annex: 2 of its slots are held (ana/1: 2) without an end; it is drained once the jobs there end, sooner by"
        " eunomia nodes drain annex --within 10m, or at once by eunomia nodes remove annex --now"
    )
    nodes_command.drain("annex", as_json=True, **at)
    (seen,) = loads(capsys.readouterr().out)["nodes"]
    assert (seen["ends_in_seconds"], f"annex: {seen['later']}") == (None, last)
    nodes_command.drain("annex", within="2h", **at)
    *rows, last = capsys.readouterr().out.splitlines()
    assert "2 of 2 still held (ana/1: 2), last lease ends in 2h" in rows[-1]
    assert last == "annex: 2 of its slots are held (ana/1: 2); it is drained in 2h at the latest"


def test_a_node_that_returned_with_fewer_slots_shows_present_and_missing_ones(two: Any) -> None:
    two.quiet()
    two.annex.register(slots=[lpb.Slot(index=0, gpu_type="cpu")])
    two.beating = Beating(two.annex)
    seen = eventually(lambda: (node := two.nodes()["annex"]).missing and node, "its other slot is missing")
    row = nodes_command._row(seen)
    assert (row[2], row[-1]) == ("1 cpu", "slot 1 missing")
    facts = nodes_command._facts(seen)
    assert (facts["slots"], facts["missing_slots"], facts["later"]) == ({"cpu": 1}, [1], None)


def test_removing_a_node_lists_the_jobs_that_hold_its_slots(two: Any) -> None:
    master = waiting(two, "ana", 4)
    master.beat_until(lambda: master.leases)
    master.beat()
    eventually(lambda: explained(two, "ana/1").state == "running", "it runs")
    answer = two.call("RemoveNode", pb.RemoveNodeRequest(node="annex"))
    assert not answer.left
    assert nodes_command.later(answer.node).startswith("2 of its slots are held (ana/1: 2)")
    assert "2 of 2 still held (ana/1: 2)" in nodes_command._row(answer.node)[-1]
    assert nodes_command._facts(answer.node)["held_by"] == [{"app": "ana", "job": "ana/1", "slots": 2}]


def test_at_most_five_holders_of_a_node_are_named() -> None:
    holders = [pb.SlotHolder(app="nets", job=f"nets/{at}", slots=1) for at in range(6)]
    many = pb.NodeView(
        node="b08", held=8, leaves=True, ends_in_seconds=9.0, held_by=[pb.SlotHolder(app="ana", slots=2), *holders]
    )
    assert nodes_command.later(many).startswith(
        "8 of its slots are held (ana: 2, nets/0: 1, nets/1: 1, nets/2: 1, nets/3: 1, and 2 more); it leaves"
    )
    assert len(nodes_command._facts(many)["held_by"]) == 7


def three_running() -> list[pb.Explanation]:
    """Explanations of jobs of one app, each on a slot of its own node."""
    return [
        pb.Explanation(job=f"ana/{at}", app="ana", user="ana", state="running", slots=1, slots_by_node={f"n{at}": 1})
        for at in range(3)
    ]


def test_on_one_machine_no_node_is_named(tmp_path: Path) -> None:
    with lab_module.lab(tmp_path, slots=1) as lab:
        lab.ready()
        master = lab.master("ana", "1")
        master.register()
        master.beat(jobs_added=[gang("ana/1", 1)])
        master.beat_until(lambda: master.leases)
        (said,) = lab.client().Explain(pb.ExplainRequest(job="ana/1"), metadata=lab.operator).explanations
        assert not said.slots_by_node
        assert not [line for line in explain_command.screen([said], {}) if line.startswith("Runs on")]


def test_a_silent_node_is_named_with_the_end_of_its_lease(two: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_leases, "QUIET_SECONDS", 0.2)
    running = waiting(two, "ana", 4)
    running.beat_until(lambda: running.leases)
    running.beat()
    waiting(two, "bob", 2)
    two.quiet()
    beginning = "it runs on 2 slots of annex, which is up (silent for "

    def named() -> list[str]:
        return [words for words in explained(two, "ana/1").nodes if words.startswith(beginning)]

    (said,) = eventually(named, "it is named")
    assert "; its lease ends in " in said and "its jobs start elsewhere then" in said
    words = next(words for words in explained(two, "bob/1").nodes if words.startswith("annex: silent for "))
    assert "its lease ends in" in words
    (annex,) = [node for node in health(two).nodes if node.node == "annex"]
    assert annex.state == "up" and annex.why.startswith("silent for ")
    seen = two.nodes()["annex"]
    row = nodes_command._row(seen)
    assert row[3] != "-" and nodes_command._facts(seen)["lease_seconds"] > 500.0


def test_health_over_http_names_the_nodes_that_are_not_up(two: Any) -> None:
    service = two.lab.arbiter.service

    async def serve() -> MetricsServer:
        return MetricsServer(service, Meters(), "127.0.0.1:0")

    server = two.lab.arbiter.run(serve())
    try:

        def nodes() -> Any:
            with urllib.request.urlopen(f"http://{server.address}/health") as answer:
                return loads(answer.read())["nodes"]

        assert nodes() == []
        two.call("DrainNode", pb.DrainNodeRequest(node="annex", why="ana: maintenance"))
        assert nodes() == [{"node": "annex", "state": "drained", "why": "ana: maintenance"}]
        two.quiet()
        service.nodes.get("annex").lost = True  # as after its silence and the end of its lease of 600 s
        with urllib.request.urlopen(f"http://{server.address}/health") as answer:  # 200, for the other node serves
            said = loads(answer.read())
        assert said["healthy"] and [line.partition(":")[0] for line in said["wrong"]] == ["annex is down"]
    finally:
        server.close()


@pytest.mark.parametrize("held", [2, 4])
def test_a_job_that_no_round_can_start_has_one_reason_although_no_slot_is_free(two: Any, held: int) -> None:
    bob = waiting(two, "bob", held)
    bob.beat_until(lambda: bob.leases)
    bob.beat()
    two.call("DrainNode", pb.DrainNodeRequest(node="annex"))  # held 4: it is busy until bob's job ends
    ana = waiting(two, "ana", 4)
    ana.beat()
    (job,) = [job for job in two.lab.seen().jobs if job.app == "ana"]
    assert (job.state, job.reason) == ("waiting", "no_size_fits")
    said = explained(two, "ana/1")
    assert (said.reason, said.nodes[0]) == ("no_size_fits", "it needs 4 slots, and 2 of 4 are there")
    assert said.text.startswith("It needs at least 4 slots; the cluster has 2 in service of 4 (2 down)")
    two.call("UndrainNode", pb.UndrainNodeRequest(node="annex"))
    assert explained(two, "ana/1").reason != "no_size_fits"


def test_the_slots_that_an_app_wishes_stay_as_they_are_when_a_node_leaves(two: Any) -> None:
    two.lab.submit("wide", "6", wait_for_machines=True)
    search = '[space]\nlr = {type = "float", low = 0.1, high = 0.5}\n[tuner]\ntrials = 9\nmetric = "loss"\n'
    text = f'[app]\nname = "search"\n[job]\ncommand = "python train.py"\nslots = 1\n{search}'
    two.lab.submit(app_file=text)
    assert (two.lab.app("wide").max_slots, two.lab.app("search").max_slots) == (6, 4)
    assert two.remove(now=True).left
    two.quiet()
    assert (two.lab.app("wide").max_slots, two.lab.app("search").max_slots) == (6, 4)


def test_slots_that_are_missing_are_not_counted_among_those_of_a_node_or_of_the_cluster(two: Any) -> None:
    two.quiet()
    two.annex.register(slots=[lpb.Slot(index=0, gpu_type="cpu")])
    two.beating = Beating(two.annex)
    eventually(lambda: two.nodes()["annex"].missing, "its other slot is missing")
    answer = two.lab.submit("ana", "9", wait_for_machines=True)
    assert answer.slots == 3
    assert answer.waits_for == "it needs 9 slots, and the cluster has 3, and never had more than 4 at once"
    two.call("DrainNode", pb.DrainNodeRequest(node="annex"))
    waiting(two, "bob", 3)
    assert explained(two, "bob/1").nodes[-1] == "annex drains: no job starts on its 1 slot"


def test_held_slots_are_counted_by_type_only_while_slots_of_several_types_are_there(two: Any) -> None:
    master = waiting(two, "ana", 1)
    master.beat_until(lambda: master.leases)
    barn = Launcher(two.lab, 1, "of barn", "barn")
    barn.register(slots=[lpb.Slot(index=0, gpu_type="fast")])
    beating = Beating(barn)
    try:
        assert dict(two.lab.app("ana").slots_by_type) == {"cpu": 1}
        two.call("RemoveNode", pb.RemoveNodeRequest(node="barn", now=True))
        assert dict(two.lab.app("ana").slots_by_type) == {}
    finally:
        beating.end()
