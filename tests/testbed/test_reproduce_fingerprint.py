"""The fingerprint of simulations: the modules that they import are in it, and sentences do not change it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eunomia_testbed.reproduce import fingerprint
from eunomia_testbed.reproduce.fingerprint import SIMULATING, code_of
from eunomia_testbed.reproduce.papers import find_paper, own_papers

RUNS = """
import json, sys
from eunomia_testbed.reproduce.afs.cells import AfsCell, run_cell as of_afs
from eunomia_testbed.reproduce.oef.cells import ROUNDS, OefCell, run_cell as of_oef
from eunomia_testbed.reproduce.oef.tenants import PRINTED
from eunomia_testbed.reproduce.shockwave.cells import run_cell as of_shockwave
from eunomia_testbed.reproduce.synergy.cells import run_cell as of_synergy
from eunomia_testbed.reproduce.themis.cells import Cell
from eunomia_testbed.reproduce.themis.alone import run_cell as of_themis

of_themis(Cell(policy="themis", seed=0, apps=2, shorter=64.0))
of_oef(OefCell(what=ROUNDS, policy="noncooperative", seed=0, tenants=4, speeds=PRINTED, hours=2.0))
print(json.dumps([name for name in sys.modules if name.startswith("eunomia")]))
"""
READING = ("eunomia_testbed.reproduce", "eunomia_appmaster.csv_cells")
"""What simulations import without running it: a paper's rows, and how a cell of CSV is quoted."""


def test_every_module_that_a_simulation_imports_is_in_the_fingerprint() -> None:
    done = subprocess.run([sys.executable, "-c", RUNS], capture_output=True, text=True, check=True, timeout=300)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    packages = {name.rpartition(".")[0] for name in loaded}
    kept = (*SIMULATING, *READING)
    outside = {name for name in loaded if not any(name == one or name.startswith(f"{one}.") for one in kept)}
    assert outside - packages == set()


def test_docstrings_comments_and_layout_do_not_change_the_fingerprint_and_code_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "SIMULATING", ("simulated_here",))
    monkeypatch.syspath_prepend(tmp_path)
    paper = find_paper("themis")

    def code(source: str) -> str:
        (tmp_path / "simulated_here.py").write_text(source)
        fingerprint._digest.cache_clear()
        fingerprint._code_of.cache_clear()
        return code_of(paper)

    plain = code("def area(side: float) -> float:\n    return side * side\n")
    said = '"""Areas."""\n\n\ndef area(side: float) -> float:\n    """Square."""\n\n    return side * side  # m²\n'
    assert code(said) == plain
    assert code("def area(side: float) -> float:\n    return side * 2.0\n") != plain
    fingerprint._digest.cache_clear()
    fingerprint._code_of.cache_clear()


def test_each_paper_has_a_fingerprint_of_its_own() -> None:
    codes = {code_of(find_paper(name)) for name in own_papers()}
    assert len(codes) == len(own_papers()) > 1
