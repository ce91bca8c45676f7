"""Records each change of a file below a folder ``apps`` that a process of Eunomia, or a worker, is about to make.

Python runs this module at its start where its folder is first in PYTHONPATH. Python reports operations on files to
audit hooks before they are done, so the product's code runs unchanged. Each process appends to a file of its own in
``log/`` beside this module, a JSON object a line: time (CLOCK_MONOTONIC and Unix), what, paths, and who.

A file ``hold`` beside it names a node: the first worker of that node that has renamed the data of a checkpoint, and is
about to rename its record, says so in a file ``held``, and waits until there is a file ``go``.
"""
# Runs at the start of each process, before anything else is imported.
# ruff: noqa: PTH100, PTH103, PTH110, PTH118, PTH120, PTH123

import json
import os
import sys
import time

_HERE = os.path.dirname(os.path.abspath(__file__))
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate", "os.symlink"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_MARK = f"{os.sep}apps"
_NAMES = ("APP", "JOB", "ATTEMPT", "PART", "INCARNATION", "NODE")
_own = {}


def _say(event, paths):
    if _own.get("pid") != os.getpid():  # also after a fork
        os.makedirs(os.path.join(_HERE, "log"), exist_ok=True)
        path = os.path.join(_HERE, "log", f"{os.getpid()}-{time.monotonic_ns()}.jsonl")
        _own["file"] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        _own["pid"] = os.getpid()
    who = {name.lower(): os.environ.get(f"EUNOMIA_{name}", "") for name in _NAMES}
    who |= {"pid": os.getpid(), "rank": os.environ.get("RANK", "")}
    line = json.dumps({"at": time.monotonic(), "unix": time.time(), "what": event, "paths": paths, "who": who})
    os.write(_own["file"], line.encode() + b"\n")


def _hold(event, paths):
    """Wait between the two renames of a save."""
    if event != "os.rename" or not paths[-1].endswith(".json") or "/checkpoints/" not in paths[-1]:
        return
    hold = os.path.join(_HERE, "hold")
    if not os.path.exists(hold):
        return
    with open(hold) as file:
        if file.read().strip() != os.environ.get("EUNOMIA_NODE"):
            return
    try:
        held = os.open(os.path.join(_HERE, "held"), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return
    os.write(held, paths[-1].encode())
    os.close(held)
    while not os.path.exists(os.path.join(_HERE, "go")):
        time.sleep(0.01)


def _hook(event, arguments):
    if event not in _CHANGES and event != "open":
        return
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITING):
        return
    given = arguments[:1] if event == "open" else arguments[:2]
    paths = [os.fsdecode(each) for each in given if isinstance(each, (str, bytes, os.PathLike))]
    if _own.get("busy") or not any(_MARK in path for path in paths):
        return
    _own["busy"] = True
    try:
        _hold(event, paths)
        _say(event, paths)
    finally:
        _own["busy"] = False


sys.addaudithook(_hook)
