"""Live runs in which every kind of process is killed, ended, stopped and continued: ``python -m chaos.storms``."""
