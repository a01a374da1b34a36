"""What tests of generated programs share: the reason to skip them, and a function to be tested."""

from __future__ import annotations

import pytest

from lens_heads.trials.confinement import missing

needs_confinement = pytest.mark.skipif(bool(missing()), reason=f"generated code cannot be confined here: {missing()}")

DOUBLE = "def double(x):\n    return 2 * x\n"
TESTS = "assert double(4) == 8\nassert double([1]) == [1, 1]\n"
