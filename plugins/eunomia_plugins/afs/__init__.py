"""AFS (NSDI'21): elastic sharing by gain in throughput, with known lengths (AFS-L) or without (AFS-P, AFS-S)."""
