"""Takes a screenshot of a report with headless Chromium.

``python -m eunomia_testbed.report.picture eunomia-out/latest docs/report.png`` makes the README's picture. Without
``--height``, the picture shows the whole page. Chromium is the Debian package ``chromium``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
import urllib.parse
from collections.abc import Sequence
from pathlib import Path

from eunomia.errors import EunomiaError, InputError

LIMIT_SECONDS = 60.0


def browser() -> str | None:
    """Return the path of a Chromium or Chrome on this machine; None: there is none."""
    found = (shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome"))
    return next((path for path in found if path), None)


def browse(page: Path, *options: str, address: str = "", dark: bool = False) -> str:
    """Open a page in headless Chromium without network access, run its scripts, and return Chromium's output.

    Args:
        page: an HTML file.
        options: options of Chromium, such as ``--dump-dom``.
        address: suffix of the page's URL, such as ``#app=halving``.
        dark: render the page in dark mode.

    Raises:
        InputError: there is no Chromium.
        EunomiaError: Chromium failed or took longer than a minute.
    """
    path = browser()
    if path is None:
        raise InputError("a picture needs Chromium, such as Debian's package chromium", value="none on the path")
    with tempfile.TemporaryDirectory(prefix="eunomia-browser-") as home:
        command = [
            path, "--headless", f"--user-data-dir={home}", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--hide-scrollbars", "--proxy-server=127.0.0.1:9", "--virtual-time-budget=4000",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
            *options, page.resolve().as_uri() + address,
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, timeout=LIMIT_SECONDS, check=True, text=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise EunomiaError(
                "Chromium must open the page within a minute", value=str(error), place=str(page)
            ) from None
    return done.stdout


def take_picture(
    page: Path, picture: Path, *, width: int = 1240, height: int | None = None, dark: bool = False, address: str = ""
) -> Path:
    """Write a PNG of the page in pixels; without a height, of the whole page. Raises the errors of ``browse``."""
    if height is None:
        drawn = browse(page, "--dump-dom", f"--window-size={width},900", address=address, dark=dark)
        found = re.search(r'<html[^>]*data-height="(\d+)"', drawn)
        height = int(found.group(1)) + 20 if found else 3000
    options = [f"--screenshot={picture.resolve()}", f"--window-size={width},{height}"]
    browse(page, *options, address=address, dark=dark)
    if not picture.exists():
        raise EunomiaError("Chromium must write the picture", value="no file", place=str(picture))
    return picture


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m eunomia_testbed.report.picture", description="Picture of a report."
    )
    parser.add_argument("page", type=Path, help="a report.html, or the folder of a run")
    parser.add_argument("picture", type=Path, help="the PNG file to write")
    parser.add_argument("--width", type=int, default=1240)
    parser.add_argument("--height", type=int, default=None, help="default: the whole page")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--app", default=None, help="show this app alone")
    parser.add_argument("--policy", default=None, help="of several, show this policy's run")
    chosen = parser.parse_args(arguments)
    page = chosen.page / "report.html" if chosen.page.is_dir() else chosen.page
    if not page.is_file():
        parser.error(f'the page must be an HTML file, but got "{page}"')
    words = {"app": chosen.app, "policy": chosen.policy}
    address = "#" + urllib.parse.urlencode({name: word for name, word in words.items() if word})
    picture: Path = chosen.picture
    picture.parent.mkdir(parents=True, exist_ok=True)
    take_picture(page, picture, width=chosen.width, height=chosen.height, dark=chosen.dark, address=address)


if __name__ == "__main__":
    main()
