"""Programs that learn the words of a made-up language: the next word, or a translation."""
