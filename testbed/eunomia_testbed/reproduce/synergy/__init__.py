"""The claims of Synergy (OSDI'22)."""
