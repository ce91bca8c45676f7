"""What the demo trains: small models on handwritten digits, each large enough for a step to take time."""
