"""The training helper: seven lines that make a PyTorch loop suspendable, resumable, resizable and logged.

``run = training.attach()`` is the entrance; everything else is a method of the `Run` it returns. ``adaptive``
prepares a run that changes its batch size by itself, by the rules ``Accordion`` and ``Gns``.
"""

from eunomia_appmaster.training.adapting import Accordion, Gns, adaptive
from eunomia_appmaster.training.run import Run, attach

__all__ = ["Accordion", "Gns", "Run", "adaptive", "attach"]
