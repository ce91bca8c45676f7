"""Imports the modules of Eunomia that every app master uses, so that app masters forked from this process have them.

An app master reports its installed plugins to the arbiter, and so imports all that ship with Eunomia, which takes about
one CPU second. Third-party plugins and tuners are imported by each app master itself, so that it runs current code.
"""

import contextlib
import importlib

from eunomia.platform.registry import DEFAULT_PLUGINS
from eunomia_appmaster.master import process, settings

__all__ = ["process", "settings"]

for _target in DEFAULT_PLUGINS.values():
    with contextlib.suppress(ImportError):  # of an extra that is not installed
        importlib.import_module(_target.partition(":")[0])
