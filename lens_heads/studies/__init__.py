"""Whole experiments, end to end, made of the parts of this package."""
