"""Notebooks: every one runs top to bottom, shows pictures, and prints no walls of numbers."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from lens_heads.model.gguf import PACKAGED

nbformat = pytest.importorskip("nbformat", reason="notebooks need pip install 'lens-heads[notebooks]'")
nbclient = pytest.importorskip("nbclient", reason="notebooks need pip install 'lens-heads[notebooks]'")
pytest.importorskip("anywidget", reason="two notebooks need pip install 'lens-heads[explorer]'")
pytest.importorskip("ipykernel", reason="notebooks need pip install 'lens-heads[notebooks]'")

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PICTURES = {"application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json"}
"""Figures, and explorers; both are stored with a static image beside them."""
STATIC = "image/png"
MOST_CELLS, MOST_LINES, CODE_CELLS_PER_PICTURE, MOST_BYTES = 21, 40, 3, 2_000_000


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(cell: Any) -> int:
    return sum(bool(PICTURES & set(output.get("data", {}))) for output in cell.outputs)


def lines(cell: Any) -> int:
    """Lines a reader sees: everything printed, rows of HTML tables, and plain text where nothing richer is shown."""
    count = sum(output.text.count("\n") for output in cell.outputs if output.output_type == "stream")
    for output in cell.outputs:
        data = output.get("data", {})
        if "text/html" in data and not PICTURES & set(data):
            count += data["text/html"].count("<tr")
        elif set(data) == {"text/plain"}:
            count += data["text/plain"].count("\n") + 1
    return count


def faults(notebook: Any) -> list[str]:
    """What breaks the rules for a notebook that has run."""
    cells = code_cells(notebook)
    found = []
    if len(notebook.cells) > MOST_CELLS:
        found.append(f"{len(notebook.cells)} cells, at most {MOST_CELLS}")
    if notebook.cells[0].cell_type != "markdown":
        found.append("the first cell does not say what the reader will know at the end")
    shown = sum(map(pictures, cells))
    if CODE_CELLS_PER_PICTURE * shown < len(cells):
        found.append(f"{shown} pictures in {len(cells)} code cells, at least one for every {CODE_CELLS_PER_PICTURE}")
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code" and lines(cell) > MOST_LINES:
            found.append(f"cell {number} prints {lines(cell)} lines, at most {MOST_LINES}")
    return found


def run(notebook: Any, folder: Path) -> Any:
    """Execute in a fresh kernel of the running interpreter, whatever kernels are installed for this user."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    with tempfile.TemporaryDirectory(prefix="kernel") as sockets:
        if sys.platform != "win32":  # A port that is free when it is chosen may be taken when the kernel binds it.
            manager.transport, manager.ip = "ipc", str(Path(sockets) / "socket")
        client = nbclient.NotebookClient(
            notebook,
            km=manager,
            timeout=900,
            startup_timeout=300,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        )
        return client.execute(cleanup_kc=True)  # The kernel would live on, for its manager was given.


def written(*sources: str) -> Any:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title"), *cells])


FIGURE = "import plotly.graph_objects as go\ngo.Figure().show(renderer='plotly_mimetype')"


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_stored_small_and_without_traces_of_one_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < MOST_BYTES
    assert notebook.metadata.kernelspec.name == "python3"
    assert str(Path.home()) + "/" not in path.read_text()
    assert str(FOLDER.parent) not in path.read_text()


def shown(notebook: Any) -> list[tuple[int, int]]:
    """Pictures and other results of every code cell; what plotly puts in front of the first picture is neither."""
    return [
        (
            pictures(cell),
            sum(output.output_type == "execute_result" or bool(output.get("text")) for output in cell.outputs),
        )
        for cell in code_cells(notebook)
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_committed_with_its_outputs(path: Path) -> None:
    """So that a code host shows them: every figure also as a static image."""
    notebook = nbformat.read(path, as_version=4)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "run python notebooks/run.py"
    drawn = [output.data for cell in cells for output in cell.outputs if PICTURES & set(output.get("data", {}))]
    assert drawn
    assert all(STATIC in data for data in drawn), "a figure without a static image beside it"
    assert faults(notebook) == []


@pytest.mark.timeout(1800)
@pytest.mark.notebook
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_top_to_bottom_and_keeps_to_the_rules(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    source = "\n".join(cell.source for cell in code_cells(notebook))
    for name, model in PACKAGED.items():
        if f'"{name}"' in source and importlib.util.find_spec(model.package) is None:
            pytest.skip(f"{path.name} uses {name}, which is not installed: {model.install}")
    committed = shown(notebook)
    done = run(notebook, tmp_path)
    assert all(cell.execution_count for cell in code_cells(done))
    assert shown(done) == committed, "run python notebooks/run.py"
    assert faults(done) == []


@pytest.mark.slow
def test_a_failing_cell_is_caught(tmp_path: Path) -> None:
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="no such head"):
        run(written("x = 1", "raise ValueError('no such head')"), tmp_path)


@pytest.mark.slow
def test_the_kernel_is_the_running_interpreter_in_the_given_folder(tmp_path: Path) -> None:
    done = run(written("import os, sys\nprint(sys.executable)\nprint(os.getcwd())"), tmp_path)
    executable, folder = done.cells[1].outputs[0].text.splitlines()
    assert executable == sys.executable
    assert Path(folder).samefile(tmp_path)


@pytest.mark.slow
def test_each_rule_catches_what_breaks_it(tmp_path: Path) -> None:
    # One picture is enough for three code cells, not for four; 40 lines pass, 41 do not; a table's rows count as lines.
    good = run(written(FIGURE, "print('\\n'.join('0' * 40))", "1"), tmp_path)
    assert faults(good) == []
    table = "import pandas as pd\nfrom IPython.display import display\ndisplay(pd.DataFrame({'x': range(45)}))"
    bad = run(written(FIGURE, "print('\\n'.join('0' * 41))", table, "1"), tmp_path)
    assert faults(bad) == [
        "1 pictures in 4 code cells, at least one for every 3",
        "cell 3 prints 41 lines, at most 40",
        "cell 4 prints 46 lines, at most 40",
    ]
    bad.cells = bad.cells[1:2] * 22
    assert faults(bad) == ["22 cells, at most 21", "the first cell does not say what the reader will know at the end"]
