"""Programs that classify handwritten digits of 8 x 8 pixels, which scikit-learn contains."""
