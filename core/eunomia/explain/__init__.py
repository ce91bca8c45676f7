"""Why a job waits, and what would free it: the words of ``eunomia explain``.

Explanations try remedies on copies of the state and change nothing. Commands and the live service call this room.
"""
