"""Malformed input, damaged files, interrupts and hostile programs: each has an error of ours, or the right result."""
