"""Imports what an app master of any app uses of Eunomia, so that forked app masters have it.

An app master names the plugins that it could run to the arbiter, and so imports all that ship with Eunomia: with the
rest about a CPU second. Plugins of others and tuners are imported by each app master, which sees their present code.
"""

import contextlib
import importlib

from eunomia.platform.registry import DEFAULT_PLUGINS
from eunomia_appmaster.master import process, settings

__all__ = ["process", "settings"]

for _target in DEFAULT_PLUGINS.values():
    with contextlib.suppress(ImportError):  # of an extra that is not installed
        importlib.import_module(_target.partition(":")[0])
