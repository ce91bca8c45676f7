"""The note on an engine in a state folder: `eunomia nodes` shows what was asked for, and `eunomia serve` refuses."""

import json
from pathlib import Path

import pytest
from tests.engines.engine_world import World, WorldArbiter, WorldPilots

from eunomia.errors import InputError
from eunomia_appmaster.commands.serve import serve
from eunomia_appmaster.commands.serve_flags import ServeFlags
from eunomia_appmaster.node.engine_note import (
    NOTE,
    AskedNode,
    EngineNote,
    check_no_engine,
    drop_note,
    note_here,
    read_note,
)
from eunomia_engines.head.head import note_asked
from eunomia_engines.keeper.demand import Demand
from eunomia_engines.keeper.keeper import Keeper
from eunomia_engines.keeper.plan import Life, Times
from eunomia_engines.slurm.request import NAMES
from eunomia_engines.testing.fake import FakeCluster, FakeEngine

WAITING = EngineNote(
    engine="slurm",
    up="eunomia slurm up",
    down="eunomia slurm down",
    at=1.0,
    asked=(AskedNode(id="4711", why="Priority"), AskedNode(id="4712", why="Priority"), AskedNode(id="4713")),
)


def test_asks_that_wait_are_lines_with_one_for_each_reason() -> None:
    assert WAITING.lines == [
        "2 asked of slurm: jobs 4711, 4712, pending: Priority",
        "1 asked of slurm: job 4713, pending",
    ]


def test_nodes_that_wait_together_are_one_ask(tmp_path: Path) -> None:
    cluster = FakeCluster(group=2)
    cluster.ask("", 4)
    note_asked(NAMES, tmp_path, [Life(id=node.id, node=node) for node in FakeEngine(cluster).nodes()])
    note = read_note(tmp_path)
    assert note is not None and note.lines == ["4 asked of slurm: jobs g0 (2 nodes), g1 (2 nodes), pending"]
    (tmp_path / NOTE).write_text('{"engine": "slurm", "up": "", "down": "", "at": 1.0, "asked": [{"id": "4711"}]}')
    earlier = read_note(tmp_path)
    assert earlier is not None and earlier.lines == ["1 asked of slurm: job 4711, pending"]


def test_a_note_survives_its_file_and_one_that_is_missing_or_damaged_is_none(tmp_path: Path) -> None:
    assert read_note(tmp_path) is None
    WAITING.save(tmp_path)
    assert read_note(tmp_path) == WAITING
    assert (tmp_path / NOTE).stat().st_mode & 0o077 == 0
    for damaged in ("", "[]", '{"engine": 1}', "\x00"):
        (tmp_path / NOTE).write_text(damaged)
        assert read_note(tmp_path) is None
    drop_note(tmp_path)
    drop_note(tmp_path)


def test_the_note_of_an_arbiter_that_is_named_by_its_address_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WAITING.save(tmp_path)
    monkeypatch.setenv("EUNOMIA_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("EUNOMIA_ADDRESS", raising=False)
    assert note_here(None, None) == WAITING == note_here(None, tmp_path)
    assert note_here("elsewhere:1", tmp_path) is None
    monkeypatch.setenv("EUNOMIA_ADDRESS", "elsewhere:1")
    assert note_here(None, None) is None


def test_the_keeper_notes_what_waits_at_each_look(tmp_path: Path) -> None:
    world = World()
    keeper = Keeper(
        FakeEngine(world),
        WorldArbiter(world),
        WorldPilots(world),
        Demand(2, 2, 60.0),
        Times(drain=300.0, margin=60.0, idle=600.0),
        clock=lambda: world.now,
        heard=lambda lives: note_asked(NAMES, tmp_path, lives),
    )
    ids: list[list[str]] = []
    for _ in range(3):
        keeper.look()
        ids.append([node.id for node in (read_note(tmp_path) or WAITING).asked])
        world.now += 30.0
        world.sync()
    assert ids == [[], ["n0", "n1"], ["n0", "n1"]]
    world.give(world.truths[0])
    world.tell(world.truths[0])
    keeper.look()
    note = read_note(tmp_path)
    assert note is not None and [node.id for node in note.asked] == ["n1"]


def test_serve_refuses_a_state_folder_whose_nodes_an_engine_gives(tmp_path: Path) -> None:
    check_no_engine(tmp_path)
    WAITING.save(tmp_path)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(InputError, match="nodes slurm gives must be served by `eunomia slurm up`, or by others after"):
        serve(ServeFlags(state_dir=tmp_path))
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    assert json.loads((tmp_path / NOTE).read_text())["down"] == "eunomia slurm down"
