"""Live runs in which workers, app masters, arbiter and launcher are killed: ``python -m chaos.kills``."""
