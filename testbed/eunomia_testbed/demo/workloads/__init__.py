"""Training scripts of the demo: small models on handwritten digits, with steps of measurable time."""
