"""The training helper: seven lines that make a PyTorch loop suspendable, resumable, resizable and logged.

Scripts start with ``run = training.attach()``; everything else is a method of the returned ``Run``. ``adaptive``
prepares a run that adapts its batch size by the rule ``Accordion`` or ``Gns``.
"""

from eunomia_appmaster.training.adapting import Accordion, Gns, adaptive
from eunomia_appmaster.training.run import Run, attach

__all__ = ["Accordion", "Gns", "Run", "adaptive", "attach"]
