"""Logs: JSON where nobody looks on, and no fault of whoever logs when nobody reads."""

import contextlib
import io
import json
import os
from pathlib import Path

import structlog

from eunomia_appmaster.node.process_logs import configure_logs


def test_without_a_terminal_each_log_record_is_one_line_of_json() -> None:
    stream = io.StringIO()
    configure_logs(level="info", stream=stream)
    structlog.get_logger().info("round.decided", round=3)
    structlog.get_logger().debug("unheard")
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert (told["event"], told["round"], told["level"]) == ("round.decided", 3, "info")
    assert told["time"].endswith("Z")


def test_logging_continues_after_its_reader_went_away_or_its_file_was_closed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "w") as stream:  # what could not be flushed, at last
        configure_logs(stream=stream)
        os.close(reading)
        structlog.get_logger().info("told to nobody")
    with (tmp_path / "log").open("w") as stream:
        configure_logs(stream=stream)
    structlog.get_logger().info("told to a closed file")
