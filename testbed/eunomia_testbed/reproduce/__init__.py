"""Papers' claims measured again: each as printed, next to what is measured here. A folder a paper; see ``paper``."""
