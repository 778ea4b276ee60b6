"""What is counted and traced, where somebody wants it: nothing of this is imported otherwise."""
