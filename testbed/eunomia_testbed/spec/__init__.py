"""``SimulationSpec``, the settings of a simulation from flags, Python keywords or ``run.json``; and cluster files."""
