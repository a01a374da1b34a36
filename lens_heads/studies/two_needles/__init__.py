"""Passages with two needles, of which the question picks one: which heads carry the choice, and which write the answer."""
