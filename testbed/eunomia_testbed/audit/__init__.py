"""Tests the promises that a policy makes to its users: on drawn instances, one-shot and over simulated rounds."""
