"""What runs show of a difference between policies: the draws behind a figure, and intervals that follow from them."""
