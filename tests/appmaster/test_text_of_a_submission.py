"""The client reads an app file that is a file, and nothing that may have no end."""

import os
from pathlib import Path

import pytest

from eunomia.errors import InputError
from eunomia_appmaster.client import _text


def test_a_device_and_a_pipe_are_refused_before_they_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    for name in ("pipe.toml", "zero.toml"):
        with pytest.raises(InputError, match="an app file must be a file, but got a device or a pipe"):
            _text(tmp_path / name, "an app file")


def test_a_byte_order_mark_is_dropped_from_the_text(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_bytes(b"\xef\xbb\xbf[app]\n")
    assert _text(tmp_path / "app.toml", "an app file") == "[app]\n"
