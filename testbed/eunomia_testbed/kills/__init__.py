"""Live runs in which workers, app masters, arbiter and launcher are killed: ``python -m eunomia_testbed.kills``."""
