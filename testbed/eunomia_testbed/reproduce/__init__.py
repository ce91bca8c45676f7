"""Papers' claims measured again: each as printed, beside what comes out here."""
