"""Training programs to copy from: small models of several tasks, which ``replay`` trains in place of a trace's models.

Each program is a script, which runs under Eunomia and without it, and whose module is in ``programs.PROGRAMS``.
"""
