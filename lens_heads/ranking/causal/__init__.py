"""Rankings by what changes in the answer when a head is patched, cut off, or followed by its gradient."""
