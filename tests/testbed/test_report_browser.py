"""The report in a real browser, where there is one: it draws, answers mouse and keyboard, and raises no error."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eunomia.errors import InputError
from eunomia_testbed.report import picture, render, write_report
from eunomia_testbed.results import RunData

needs_browser = pytest.mark.skipif(picture.browser() is None, reason="no Chromium on this machine (package chromium)")

WATCH = """<script>
window.errors = [];
addEventListener("error", (event) => window.errors.push(event.message));
window.alert = () => window.errors.push("alert");
console.error = (...words) => window.errors.push(words.join(" "));
</script>"""


def opened(page: Path, address: str = "", script: str = "use_report.js") -> dict[str, Any]:
    """What the page showed and did when it was used in the browser."""
    used = page.with_name("used.html")
    text = page.read_text(encoding="utf-8")
    use = f"<script>{Path(__file__).with_name(script).read_text(encoding='utf-8')}</script>"
    used.write_text(text.replace("<head>", "<head>" + WATCH).replace("</body>", use + "</body>"), encoding="utf-8")
    shown = picture.browse(used, "--dump-dom", "--window-size=1240,900", address=address)
    match = re.search(r'<pre id="result">(.*?)</pre>', shown, re.DOTALL)
    assert match is not None, shown[-2000:]
    found: dict[str, Any] = json.loads(html.unescape(match.group(1)))
    return found


@needs_browser
def test_the_page_works_in_a_browser(write_sample: Callable[..., Path], tmp_path: Path) -> None:
    found = opened(write_report(write_sample(tmp_path / "run")))
    assert found["errors"] == []
    assert found["broken"] == 0
    # slots; fairness; JCT and sizes; slots, queue, slot time, reasons; four searches and their best; payments
    assert found["drawings"] == 1 + 2 + 2 + 4 + 5 + 1
    assert found["tables"] >= 7
    assert re.search(r"run for [\d.]+ s", found["tip"])
    assert "box7, slot 0" in found["tip"]
    assert re.fullmatch(r"#app=\w+", found["filtered"])
    assert 0 < found["faded"] < found["bars"]
    assert found["rowsOfApp"] == 1
    assert re.fullmatch(r"#app=\w+&from=[\d.]+&to=[\d.]+", found["zoomed"])
    assert found["fewer"] < found["bars"] == found["again"]
    assert found["reset"] == ""
    assert found["walked"]
    assert found["keyZoom"].startswith("#from=")
    assert found["sorted"] == sorted(found["sorted"], reverse=True)
    assert found["aria"] == "descending"
    assert found["apps"] == ["curves", "halving", "hyperband", "single"]


@needs_browser
def test_policies_are_compared_in_a_browser(simulated_folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text(render(RunData.load(simulated_folder)), encoding="utf-8")
    found = opened(report, "#policy=las&seed=1", script="use_comparison.js")
    assert found["errors"] == []
    assert found["broken"] == 0
    assert found["opened"] == "las, seed 1"
    assert found["titles"] == ["las, seed 1"] * 6
    assert found["shownViews"] == 8  # one a part
    assert found["policyLines"] == 3
    assert len(found["dashes"]) == 3
    assert found["strong"] == 1
    assert found["clicked"] == "#policy=fifo&seed=0"
    assert found["after"] == "fifo, seed 0"
    assert found["verdicts"][0] != found["verdicts"][1]
    assert found["zoomed"].startswith("#from=")
    assert len(set(found["zoomedTicks"])) == 1  # every time axis shows the same stretch
    assert found["pointTip"].startswith("fifo")
    assert re.fullmatch(r"#app=job-\d+(&.*)?", found["filtered"])
    assert found["reset"] == "#policy=fifo&seed=0"


@needs_browser
def test_a_large_run_is_drawn_in_a_browser(large_run: RunData, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_text(render(large_run), encoding="utf-8")
    found = opened(report, script="use_large.js")
    assert found["errors"] == []
    assert found["broken"] == 0
    assert 2 <= found["levels"] <= 11  # a path a level
    assert "slots in use" in found["cellTip"]
    assert found["everyDrawing"] == found["drawnWithContent"]


@needs_browser
def test_hostile_names_cause_no_errors_in_a_browser(hostile_folder: Path, tmp_path: Path) -> None:
    page = render(RunData.load(hostile_folder)).replace("<head>", "<head>" + WATCH)
    told = "<script>document.body.dataset.errors = JSON.stringify(window.errors)</script></body>"
    (tmp_path / "page.html").write_text(page.replace("</body>", told), encoding="utf-8")
    shown = picture.browse(tmp_path / "page.html", "--dump-dom")
    assert 'data-errors="[]"' in shown
    assert "NaN" not in shown[: shown.index("<script")]
    assert "undefined" not in shown[: shown.index("<script")]


@needs_browser
def test_a_link_opens_the_page_at_an_app(write_sample: Callable[..., Path], tmp_path: Path) -> None:
    report = write_report(write_sample(tmp_path / "run"))
    pressed = 'aria-pressed="true" title="Show halving alone"'
    assert pressed in picture.browse(report, "--dump-dom", address="#app=halving")
    assert 'aria-pressed="true" title="Show' not in picture.browse(report, "--dump-dom", address="#app=nobody")


@needs_browser
def test_the_picture_command_captures_the_whole_page_in_both_colour_schemes(
    write_sample: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write_sample(tmp_path / "run")
    write_report(folder)
    pictures = [tmp_path / "light.png", tmp_path / "dark.png"]
    picture.main([str(folder), str(pictures[0]), "--width", "900"])
    picture.main([str(folder), str(pictures[1]), "--width", "900", "--dark", "--height", "700"])
    sizes = [tuple(int.from_bytes(each.read_bytes()[at : at + 4], "big") for at in (16, 20)) for each in pictures]
    assert sizes[0][0] == 900
    assert sizes[0][1] > 2000
    assert sizes[1] == (900, 700)


def test_a_missing_browser_is_reported_clearly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="a picture needs Chromium"):
        picture.browse(tmp_path / "page.html")
