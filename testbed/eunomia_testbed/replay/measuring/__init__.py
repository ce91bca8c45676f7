"""Measures rates of programs and costs of changes by short runs of the real service on the slots of a replay."""
