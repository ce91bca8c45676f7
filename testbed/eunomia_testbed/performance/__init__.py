"""How fast a job really is: declared, measured or from an analytic model. Ground truth: no plugin sees it."""

from eunomia_testbed.performance.speeds import PerformanceModel, Setting

__all__ = ["PerformanceModel", "Setting"]
