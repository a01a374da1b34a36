"""Without a connection, the hub is asked once."""

from __future__ import annotations

import socket
from typing import Any

import datasets.config
import pytest
from huggingface_hub import constants

import lens_heads as lh
from lens_heads.runs.hub import as_reachable, off_the_hub


def offline() -> tuple[bool, bool]:
    return constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE


def test_inside_nothing_is_asked_and_afterwards_all_is_as_before() -> None:
    before = offline()
    with off_the_hub():
        assert offline() == (True, True)
    assert offline() == before


@pytest.mark.parametrize(("known", "proxies"), [(True, {}), (False, {}), (False, {"https": "http://proxy"})])
def test_it_is_left_alone_where_its_name_is_unknown(known: bool, proxies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int) -> list[Any]:
        assert (host, port) == ("huggingface.co", 443)
        if not known:
            raise socket.gaierror(-2, "Name or service not known")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr("urllib.request.getproxies", lambda: proxies)
    monkeypatch.setattr(constants, "ENDPOINT", "https://huggingface.co")
    before = offline()
    with as_reachable():
        assert offline() == ((True, True) if not known and not proxies else before)


def test_a_model_and_data_that_cannot_be_had_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"waited {seconds} s to ask again"))
    with pytest.raises((OSError, ValueError), match="no-such/model"):
        lh.load_model("no-such/model")
    with pytest.raises(FileNotFoundError, match="could not load openai/gsm8k"):
        lh.tasks.gsm8k(n=2)
