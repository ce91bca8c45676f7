"""Evidence on differences between policies: the draws behind each figure, and intervals estimated from them."""
