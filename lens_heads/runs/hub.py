"""The Hugging Face hub, where there is none: nothing is asked of it over and over for minutes."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from urllib.parse import urlparse


@contextmanager
def off_the_hub() -> Iterator[None]:
    """Inside, nothing is asked of the hub; what its cache holds is found."""
    import datasets.config
    from huggingface_hub import constants

    held = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = held


def as_reachable() -> AbstractContextManager[None]:
    """Inside, nothing is asked of the hub if this machine does not know its name, since every question is repeated for half a
    minute. A proxy may know it."""
    from huggingface_hub import constants

    if urllib.request.getproxies():
        return nullcontext()
    try:
        socket.getaddrinfo(urlparse(constants.ENDPOINT).hostname, 443)
    except OSError:
        return off_the_hub()
    return nullcontext()
