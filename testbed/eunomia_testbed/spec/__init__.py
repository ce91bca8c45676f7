"""What is simulated: ``SimulationSpec``, from which flags, Python keywords, ``run.json`` and the plan are made."""
