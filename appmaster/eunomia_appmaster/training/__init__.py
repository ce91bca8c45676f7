"""The training helper: seven lines that make a PyTorch loop suspendable, resumable, resizable and logged.

``run = training.attach()`` is the only entrance; everything else is a method of the `Run` it returns.
"""

from eunomia_appmaster.training.run import Run, attach

__all__ = ["Run", "attach"]
