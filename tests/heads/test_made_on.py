"""Trials that share an id, a needle, a prompt or any of their groups are dependent; a record survives JSON."""

from __future__ import annotations

import json

import pytest

from lens_heads.heads.made_on import MadeOn, shared


@pytest.mark.parametrize("group", ["", "company", ("needle 1", "Anna")])
def test_a_record_survives_json(group: str | tuple[str, ...]) -> None:
    one = MadeOn("a", group, "n", "p")
    assert MadeOn.read(json.loads(json.dumps(one.record))) == one


def test_trials_that_share_any_group_are_dependent() -> None:
    crossed = MadeOn("a", ("needle 1", "Anna"))
    others = [MadeOn("b", ("needle 2", "Anna")), MadeOn("c", "needle 1"), MadeOn("d", ("needle 2", "Ben")), MadeOn("e")]
    assert [shared([crossed], [other]) for other in others] == [["a"], ["a"], [], []]
