"""Learning curves of real trainings, recorded once, for measurements of tuners."""
