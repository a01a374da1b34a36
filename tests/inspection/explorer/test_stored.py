"""Explorers that runs store: the same bytes as those seen live, on the pages of studies, and from the command line."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

import lens_heads as lh
from lens_heads.inspection.explorer.rows import rows
from lens_heads.inspection.explorer.stored import ABOUT, FOLDER, HEADS, folders, store, stored
from lens_heads.inspection.explorer.widget import Explorer
from lens_heads.inspection.look_results import Look
from lens_heads.report import explored, write_explorer
from lens_heads.studies import seen
from tests import planted
from tests.inspection.explorer.made import MARKUP, scores
from tests.planted import COPIER, WRITER


def kept(folder: Path) -> Path:
    return store(folder / FOLDER, planted.model(), planted.trials(4), scores())


@pytest.mark.slow
def test_what_is_stored_is_what_look_sees(tmp_path: Path) -> None:
    data = stored(kept(tmp_path))
    assert [one["look"]["trial"] for one in data["bank"]] == [trial.id for trial in planted.trials(4)[:3]]
    assert data["traits"]["about"]["scores"][0]["name"] == "locos"
    assert data["traits"]["heads"] == [str(scores()["locos"].top(1)[0])]
    for one, trial in zip(data["bank"], planted.trials(4), strict=False):
        assert 1 <= len(one["heads"]) <= HEADS
        live = lh.look(planted.model(), trial, heads=one["heads"])
        assert base64.b64decode(one["rows"]) == rows(live, one["heads"])


@pytest.mark.slow
def test_the_same_runs_nothing_again_and_other_scores_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = kept(tmp_path)
    asked: list[Any] = []
    real = lh.look

    def look(*args: Any, **kwargs: Any) -> Look:
        asked.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr("lens_heads.inspection.explorer.stored.look", look)
    kept(tmp_path)
    assert asked == []
    store(folder, planted.model(), planted.trials(4), scores()["copy"])
    assert len(asked) == 3
    assert [one["name"] for one in stored(folder)["traits"]["about"]["scores"]] == ["copy"]


@pytest.mark.slow
def test_damaged_and_missing_explorers_are_named(tmp_path: Path) -> None:
    folder = kept(tmp_path)
    (folder / ABOUT).write_text(json.dumps({"model": "x"}))
    with pytest.raises(ValueError, match=r"holds no whole explorer .* repeat the run"):
        stored(folder)
    good = store(tmp_path / "other", planted.model(), planted.trials(1), scores()) / ABOUT
    about = json.loads(good.read_text())
    wrong: list[Any] = [{"model": ["x"]}, {"scores": []}, {"layers": 3}, {"ablated": None}, {"trials": []}]
    wrong += [{"scores": [{**about["scores"][0], "values": "x"}]}, {"trials": ["a", "b"]}]
    for change in wrong:
        good.write_text(json.dumps({**about, **change}))
        with pytest.raises(ValueError, match="repeat the run"):
            stored(good.parent)
    with pytest.raises(FileNotFoundError, match="holds no explorer: the commands score"):
        explored.write(tmp_path / FOLDER)
    with pytest.raises(FileNotFoundError, match="is no folder"):
        explored.write(tmp_path / "nowhere")


@pytest.mark.slow
def test_one_page_shows_every_explorer_of_a_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        kept(tmp_path / name)
    assert folders(tmp_path) == [tmp_path / "a" / FOLDER, tmp_path / "b" / FOLDER]
    page = explored.write(tmp_path).read_text()
    assert page.count("data-explorer>") == 2
    assert "planted: b" in page
    assert re.findall(r'script type="module"', page) == ['script type="module"']


def test_a_failing_explorer_costs_no_run(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="gets no explorer: "):
        seen.keep(tmp_path, planted.model(), seen.Seen([], scores()))
    assert seen.sections({"x": tmp_path}) == []
    seen.keep(tmp_path, planted.model(), seen.Seen(planted.trials(1), scores()))
    assert [one.title for one in seen.sections({"x": tmp_path})] == ["x"]


def test_a_notebook_s_explorer_becomes_a_page(tmp_path: Path) -> None:
    explorer: Explorer = lh.explore(
        planted.model(), planted.trials(3), scores(), controls=lh.Controls("random", 1), max_new_tokens=2
    )
    explorer.trial, explorer.heads = 2, [str(COPIER), str(WRITER)]
    explorer.run("zero")
    data = explorer.payload
    assert [one["look"]["trial"] for one in data["bank"]] == [planted.trials(3)[at].id for at in (0, 2)]
    assert data["traits"]["trial"] == 1
    assert data["traits"]["heads"] == [str(COPIER), str(WRITER)]
    assert len(data["traits"]["history"]) == 1
    page = write_explorer(explorer, tmp_path / "page.html").read_text()
    assert "data-explorer" in page
    assert MARKUP not in page


def test_a_look_at_some_heads_is_that_look() -> None:
    trial = planted.trials(1)[0]
    whole, part = lh.look(planted.model(), trial), lh.look(planted.model(), trial, heads=[WRITER, COPIER])
    few = whole.only([WRITER, COPIER])
    assert few.heads == part.heads
    for name in ("attention", "phi", "z", "writes", "top_ids"):
        assert getattr(few, name).equal(getattr(part, name)), name
    with pytest.raises(ValueError, match="L9H9"):
        whole.only(["L9H9"])
