"""Example training programs: small models of several tasks, which ``replay`` trains in place of a trace's models.

Each program is a script that runs with or without Eunomia; ``programs.PROGRAMS`` lists them.
"""
