"""``SimulationSpec``: the settings behind flags, Python keywords, ``run.json`` and the plan; files of clusters."""
