"""What runs and shows whole workloads: the demo, the report, and later simulator and replay."""
