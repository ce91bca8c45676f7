"""An app master that waits for newcomers for 3 s only, else as it is. Not a test."""

import runpy

from eunomia_appmaster.master import live_changes

setattr(live_changes, "READY_SECONDS", 3.0)  # noqa: B010 - it is final for all but this test
setattr(live_changes, "STARTS", 0.0)  # noqa: B010
runpy.run_module("eunomia_appmaster.master", run_name="__main__", alter_sys=True)
