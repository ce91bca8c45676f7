"""The scripted runs.

``search``: a search of four trials and a single job of two slots, on three slots. ``short``: one job of four steps.
``nodes``: a node joins, and one job runs over it and the first one. ``lost``: a longer one. ``joins``: a machine joins
with a token, and one job runs over both. ``leaves``: it is drained and removed while two jobs run, one on each.
``live``: a job shrinks live for another app, and grows after it. ``early``: it shrinks before its first step, and the
slot comes back before it, too.
"""

from typing import Final

from chaos.crash_points.enumeration import Script
from chaos.crash_points.live_gang import BUILD_SECONDS
from chaos.crash_points.world import AppSpec

SLOTS: Final = 3
SEARCH: Final = """
[app]
name = "search"
user = "ana"
[job]
command = "python train.py"
slots = 1
max_iterations = 24
[space]
lr = { type = "float", low = 0.01, high = 0.1 }
[tuner]
kind = "successive_halving"
metric = "val/accuracy"
trials = 4
reduction_factor = 2
min_iterations = 12
seed = 5
"""
SINGLE: Final = """
[app]
name = "single"
user = "ben"
[job]
command = "python train.py"
slots = 2
max_iterations = 36
"""
SHORT: Final = """
[app]
name = "short"
user = "ana"
[job]
command = "python train.py"
slots = 1
max_iterations = 4
"""
OVER_NODES: Final = """
[app]
name = "wide"
user = "ana"
[job]
command = "python train.py"
slots = 2
max_iterations = 4
"""
PAIR: Final = """
[app]
name = "pair"
user = "ana"
[job]
command = "python train.py"
slots = 1
max_iterations = 30
[space]
lr = { type = "float", low = 0.01, high = 0.1 }
[tuner]
kind = "none"
metric = "val/accuracy"
trials = 2
seed = 5
"""
LIVE: Final = """
[app]
name = "live"
user = "ana"
[job]
command = "python train.py"
slots = { min = 1, max = 2 }
max_iterations = 120
elastic = "live"
"""
EARLY: Final = LIVE.replace("120", "30") + f'env = {{ {BUILD_SECONDS} = "3.0" }}\n'
SCRIPTS: Final = {
    "early": Script(name="early", apps=(AppSpec(text=EARLY, at=0.1), AppSpec(text=SHORT, at=1.0)), slots=2, live=True),
    "joins": Script(name="joins", apps=(AppSpec(text=OVER_NODES, at=0.1),), slots=1, scene="joins"),
    "leaves": Script(name="leaves", apps=(AppSpec(text=PAIR, at=0.1),), slots=1, scene="leaves"),
    "live": Script(name="live", apps=(AppSpec(text=LIVE, at=0.1), AppSpec(text=SHORT, at=2.5)), slots=2, live=True),
    "lost": Script(name="lost", apps=(AppSpec(text=SINGLE.replace("36", "90"), at=2.0),), slots=1, nodes=2),
    "nodes": Script(name="nodes", apps=(AppSpec(text=OVER_NODES, at=2.0),), slots=1, nodes=2),
    "search": Script(name="search", apps=(AppSpec(text=SEARCH, at=0.3), AppSpec(text=SINGLE, at=1.1)), slots=SLOTS),
    "short": Script(name="short", apps=(AppSpec(text=SHORT, at=0.1),), slots=1),
}
