"""What an attack must meet: an error raised by this package that names thing, value and remedy, and an untouched model."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lens_heads
from lens_heads.model.hooks import has_hooks

HOUSE = Path(lens_heads.__file__).parent


def refused(run: Callable[[], Any], says: str, model: Any = None) -> str:
    """`run` raises a ValueError, TypeError or OSError of ours whose text contains `says`, and leaves no hook on `model`.

    Returns the text.
    """
    with pytest.raises((ValueError, TypeError, OSError)) as caught:
        run()
    assert says in str(caught.value), str(caught.value)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert Path(last.filename).is_relative_to(HOUSE), f"raised by {last.filename}:{last.lineno}, not by this package"
    assert model is None or not has_hooks(model)
    return str(caught.value)
