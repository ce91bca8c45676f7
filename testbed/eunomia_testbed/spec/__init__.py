"""``SimulationSpec``, the settings behind flags, Python keywords, ``run.json`` and the plan; and cluster files."""
