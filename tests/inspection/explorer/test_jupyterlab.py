"""The explorer in a real JupyterLab: a click on the page becomes an experiment in the kernel, and Python knows of it.

The last screenshot goes to the folder LENS_HEADS_SCREENSHOTS, if it is set.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import lens_heads as lh
from tests.inspection.explorer.test_browser import CHROMIUM, chosen, head

nbformat = pytest.importorskip("nbformat", reason="a notebook needs pip install 'lens-heads[notebooks]'")
pytest.importorskip("ipykernel", reason="a notebook needs pip install 'lens-heads[notebooks]'")
pytest.importorskip("anywidget", reason="the explorer needs pip install 'lens-heads[explorer]'")
pytest.importorskip("jupyterlab", minversion="4", reason="JupyterLab needs pip install 'lens-heads[dev]'")
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright needs pip install 'lens-heads[dev]'")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")]

TOKEN, WAIT = "explorer", 120  # seconds
OPENED = """import lens_heads as lh
truth = lh.planted_model()
explorer = lh.explore(truth.model, truth.trials(3), controls=lh.Controls('random', 2), max_new_tokens=3)
explorer"""
KNOWN = """import json, sys
rows = explorer.frame.to_dict("records")
print(json.dumps({"heads": explorer.heads, "rows": rows, "python": sys.prefix}))"""
ALONE = ["--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
ALONE += ["--LabApp.extension_manager=readonly", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"]
QUIET = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a notebook in a JupyterLab that knows this interpreter's extensions and kernel, and no user's settings."""
    cells = [nbformat.v4.new_code_cell(source) for source in (OPENED, KNOWN)]
    about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=about), tmp_path / "explore.ipynb")
    (tmp_path / "config" / "labconfig").mkdir(parents=True)
    (tmp_path / "config" / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(QUIET))
    places = {f"JUPYTER_{name.upper()}_DIR": str(tmp_path / name) for name in ("config", "data", "runtime")}
    places |= {"IPYTHONDIR": str(tmp_path / "ipython"), "JUPYTER_PREFER_ENV_PATH": "1"}
    options = [*ALONE, "--ServerApp.port=0", f"--ServerApp.root_dir={tmp_path}", f"--IdentityProvider.token={TOKEN}"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")} | places
    with (tmp_path / "log.txt").open("w") as log:
        command = [sys.executable, "-m", "jupyterlab", *options]
        server = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield f"http://127.0.0.1:{port(server, tmp_path)}/lab/tree/explore.ipynb?token={TOKEN}"
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def port(server: subprocess.Popen[bytes], folder: Path) -> int:
    """The port that the server writes down once it listens."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end and server.poll() is None:
        for file in (folder / "runtime").glob("jpserver-*.json"):
            with suppress(ValueError):  # The file is there before its text is.
                return json.loads(file.read_text())["port"]
        time.sleep(0.1)
    pytest.fail("JupyterLab did not start: " + (folder / "log.txt").read_text()[-3000:])


def ours(source: str) -> bool:
    """Whether this address or stack is the explorer's: its module, which is a blob, or what carries it, anywidget and widgets.

    Lab and its other extensions may complain about what has nothing to do with the explorer.
    """
    return any(part in source for part in ("blob:", "/extensions/anywidget/", "/extensions/@jupyter-widgets/"))


@pytest.fixture
def opened(lab: str) -> Iterator[Any]:
    """The notebook in Chromium; afterwards nothing has asked for another machine, and the explorer has not complained."""
    away: list[str] = []
    heard: list[str] = []

    def asks(one: Any) -> None:
        if urlsplit(one.url).hostname not in ("127.0.0.1", "localhost", None):  # None: data and blobs.
            away.append(one.url)

    def complains(text: str, source: str) -> None:
        if ours(source):
            heard.append(text)

    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=1000 * WAIT)
        page = browser.new_page(viewport={"width": 1400, "height": 1300}, color_scheme="light")
        page.set_default_timeout(1000 * WAIT)
        page.on("request", asks)
        page.on("websocket", asks)
        page.on("console", lambda one: complains(one.text, one.location["url"]) if one.type == "error" else None)
        page.on("pageerror", lambda error: complains(str(error), error.stack or ""))
        page.goto(lab)
        try:
            yield page
        finally:
            if (folder := os.environ.get("LENS_HEADS_SCREENSHOTS")) is not None:
                page.screenshot(path=Path(folder) / "jupyterlab.png")
            browser.close()
    assert away == []
    assert heard == []


def run(page: Any, number: int) -> Any:
    """Run a cell, and return where its output appears."""
    cell = page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    cell.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    return cell.locator(".jp-OutputArea-output")


def test_a_click_ablates_in_the_kernel_and_python_knows_of_it(opened: Any) -> None:
    truth = lh.planted_model()
    clicked, trial = truth.of("copier")[0], truth.trials(3)[0]
    opened.locator(".jp-StatusBar-TextItem", has_text="| Idle").wait_for()
    run(opened, 0)
    opened.wait_for_selector(".lh-explorer")
    assert str(clicked) not in chosen(opened)
    head(opened, clicked).click()
    opened.locator(".lh-tops strong", has_text=str(clicked)).wait_for()
    opened.get_by_role("button", name="ablate (zero)", exact=True).click()
    opened.wait_for_selector(".lh-tried table td")
    heads, _, kind, logprobs = opened.locator(".lh-tried td").all_inner_texts()[:4]
    assert (heads, kind) == (str(clicked), "ablate (zero)")

    before = lh.evaluate(truth.model, trial, max_new_tokens=3, progress=False)
    with lh.ablate(truth.model, [clicked], kind="zero"):
        after = lh.evaluate(truth.model, trial, max_new_tokens=3, progress=False)
    expected = [float(found.metrics["logprob"][0]) for found in (before, after)]
    assert expected[1] < expected[0] - 0.5
    shown = [float(number) for number in re.findall(r"[+-]?\d+\.\d+", logprobs.replace("−", "-"))]
    assert shown == pytest.approx([*expected, expected[1] - expected[0]], abs=0.006), "two digits are shown"

    known = json.loads(run(opened, 1).first.inner_text())
    assert known["python"] == sys.prefix
    assert known["heads"] == [str(clicked)]
    (row,) = known["rows"]
    assert (row["heads"], row["kind"], row["draws"]) == ([str(clicked)], "zero", 2)
    assert [row["before"], row["after"]] == pytest.approx(expected, abs=1e-5)
    assert (row["text_before"], row["text_after"]) == (before.texts[0], after.texts[0])
