"""What the demo trains: small models on scikit-learn's handwritten digits, each large enough for a step to take time."""
