"""A field is found among numbers, texts and arrays as the package gguf writes them; a model from such a file obeys it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter

import lens_heads as lh
from lens_heads.model.gguf_fields import truth
from lens_heads.trials.bos import begins
from tests.model.test_beginning import TEXT, saved, written

FIELD = "tokenizer.ggml.add_bos_token"


def file_with(path: Path, adds: bool | None) -> Path:
    writer = GGUFWriter(str(path), "llama")
    writer.add_uint8("small", 7)
    writer.add_float64("large", 0.5)
    writer.add_string("name", "of it: " + FIELD)
    writer.add_array("tokens", ["a", "bc", "", "über"])
    writer.add_array("scores", [0.5, 1.5, 2.5])
    writer.add_uint64("count", 1)
    if adds is not None:
        writer.add_bool(FIELD, adds)
    writer.add_bool("after", True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("adds", [True, False, None])
def test_a_field_is_found_or_not(tmp_path: Path, adds: bool | None) -> None:
    file = file_with(tmp_path / "model.gguf", adds)
    assert truth(file, FIELD) is adds
    assert truth(file, "after") is True
    assert truth(file, "count") is None, "a number"


def test_what_is_no_such_file_has_no_field(tmp_path: Path) -> None:
    file = file_with(tmp_path / "model.gguf", True)
    for name, content in (("empty", b""), ("other", b"PK" * 40), ("cut", file.read_bytes()[:150])):
        (tmp_path / name).write_bytes(content)
        assert truth(tmp_path / name, FIELD) is None
    assert truth(tmp_path / "missing", FIELD) is None


@pytest.mark.parametrize("adds", [True, False])
def test_prompts_begin_as_the_file_says(tmp_path: Path, monkeypatch: Any, adds: bool) -> None:
    """The folder that transformers makes of it has lost the field: here it says the opposite."""
    folder = saved(tmp_path / "converted", adds="" if adds else "<bos>")
    monkeypatch.setattr("lens_heads.model.gguf.converted", lambda _: folder)
    model = lh.load_model(file_with(tmp_path / "model.gguf", adds))
    assert begins(model.tokenizer) == [1] * adds
    assert {len(ids) for ids in written(model).values()} == {adds + len(TEXT)}
    shutil.rmtree(folder)
    assert begins(model.tokenizer) == [1] * adds
