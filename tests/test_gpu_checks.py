"""``make gpu`` without a GPU: it says why and ends with 0; what of its checks needs no GPU is made on the CPU."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpu_checks import __main__ as command
from gpu_checks import live, on_one_device
from gpu_checks.catalogue import CHECKS
from gpu_checks.check import GpuCheck, GpuCheckError
from gpu_checks.devices import sampled, wait_until, why_no_gpu
from gpu_checks.running import run_checks

ROOT = Path(__file__).parent.parent
FLOORS = ("core", "solvers", "plugins", "appmaster", "engines", "hpo_adapters", "testbed", "tests")
ENDS = {
    "good": "print('noise'); print('12 of 12')",
    "bad": "print('memory must be free, but got \"3 MiB\"'); raise SystemExit(1)",
    "crash": "import os, signal; print('here', flush=True); os.kill(os.getpid(), signal.SIGSEGV)",
    "hang": "import time; time.sleep(600)",
    "last": "print('also')",
}


@pytest.fixture(autouse=True)
def floors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(ROOT / floor) for floor in FLOORS))


def test_each_check_prints_one_line_and_a_failed_check_does_not_stop_the_others(tmp_path: Path) -> None:
    def argv(check: GpuCheck, place: Path) -> Sequence[str]:
        assert place.is_dir()
        return [sys.executable, "-c", ENDS[check.name]]

    lines: list[str] = []
    limits = dict.fromkeys(ENDS, 60.0) | {"hang": 0.5}
    checks = [GpuCheck(name=name, run=str, limit_seconds=limits[name]) for name in ENDS]
    ends = run_checks(checks, tmp_path, lines.append, argv)
    assert [end.passed for end in ends] == [True, False, False, False, True]
    assert ends[0].text == "12 of 12"
    assert "memory must be free" in ends[1].text and str(tmp_path / "bad.log") in ends[1].text
    assert "SIGSEGV; last line: here" in ends[2].text
    assert "not done within 0.5 s" in ends[3].text
    assert len(lines) == 5 and lines[1].startswith("FAILED") and lines[4].startswith("ok")


def test_without_a_gpu_the_command_states_the_reason_and_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    reason = why_no_gpu()
    if reason is None:
        pytest.skip("there is a GPU")
    assert command.main([]) == 0
    assert capsys.readouterr().out == f"no GPU, so none of {len(CHECKS)} checks ran: {reason}\n"


def test_the_command_exits_with_1_if_a_check_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "why_no_gpu", lambda: None)
    monkeypatch.setattr(command, "why_not_usable", lambda: None)
    code = command.main(["--only", "memory-shares", "--only", "faults", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    if why_no_gpu() is not None:
        assert code == 1 and out.count("FAILED") == 2 and "0 of 2 checks passed" in out


def test_a_gpu_that_torch_cannot_use_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "why_no_gpu", lambda: None)
    monkeypatch.setattr(command, "why_not_usable", lambda: "torch is built without CUDA")
    assert command.main([]) == 1
    assert "torch is built without CUDA" in capsys.readouterr().out


def test_checkpoints_are_compared_bit_by_bit() -> None:
    import torch

    one = {"a": [torch.ones(2), 3], "b": {"c": torch.zeros(1)}}
    other = {"a": [torch.ones(2), 3], "b": {"c": torch.full((1,), 1e-30)}}
    assert on_one_device._differences(one, one) == []
    assert on_one_device._differences(one, other) == ["/b/c"]
    assert on_one_device._differences(one, {"a": []}) == [""]


def test_samples_are_taken_while_the_block_runs() -> None:
    with sampled(lambda: 0.5, seconds=0.01) as samples:
        wait_until(lambda: len(samples) > 2, "samples")
    count = len(samples)
    assert set(samples) == {0.5} and count == len(samples)


class Reader:
    """A device whose memory a process gives back late, or in time."""

    def __init__(self, *, late: bool) -> None:
        self.late = late

    def used_bytes(self) -> int:
        return 0

    def process_ids(self) -> set[int]:
        self.late, asked = False, self.late
        return set() if asked else {4711}

    def utilization(self) -> float:
        return 0.0


@pytest.mark.slow
def test_the_checks_of_checkpoints_and_gloo_pass_on_the_cpu(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    assert "bit by bit after 2 stops" in on_one_device.checkpoints(tmp_path / "checkpoints")
    (tmp_path / "gloo").mkdir()
    assert on_one_device._collective(tmp_path / "gloo", "gloo", "cpu", 2).count("gloo, cpu") == 2


@pytest.mark.slow
def test_a_slot_that_is_freed_before_its_memory_fails_the_check(tmp_path: Path) -> None:
    quiet = Reader(late=False)
    (tmp_path / "good").mkdir()
    assert "1 ends: memory free before the slot" in live.freed(tmp_path / "good", quiet, device="cpu", times=1)
    (tmp_path / "late").mkdir()
    with pytest.raises(GpuCheckError, match="no process may be left"):
        live.freed(tmp_path / "late", Reader(late=True), device="cpu", times=1)
