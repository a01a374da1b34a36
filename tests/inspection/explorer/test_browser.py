"""The explorer's module in Chromium: every interaction, on a page with recorded data and on a model with a kernel.

Screenshots go to the folder LENS_HEADS_SCREENSHOTS, if it is set.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lens_heads.inspection.explorer import recorded
from lens_heads.inspection.explorer.recorded import asset
from lens_heads.report import Figure, Section, Summary, write_report
from tests.inspection.explorer.made import MARKUP, about, hostile, long, looks, page, scores, with_kernel
from tests.planted import COPIER, WRITER

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDE = {"width": 1250, "height": 1000}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """A function that opens a file; afterwards no page has asked for anything else or complained."""
    heard: list[str] = []
    pages: list[Any] = []

    def start(file: Path, **options: Any) -> Any:
        found = browser.new_page(**{"viewport": WIDE, **options})
        found.on("request", lambda one: one.url.startswith("file:") or heard.append(one.url))
        found.on("console", lambda one: heard.append(one.text) if one.type in ("error", "warning") else None)
        found.on("pageerror", lambda error: heard.append(str(error)))
        found.goto(file.as_uri())
        found.wait_for_selector(".lh-explorer")
        pages.append(found)
        return found

    yield start
    for one in pages:
        if (folder := os.environ.get("LENS_HEADS_SCREENSHOTS")) is not None:
            name = re.sub(r"\W+", "_", os.environ.get("PYTEST_CURRENT_TEST", "page").split("::")[-1])
            one.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
        one.close()
    assert heard == []


def head(page: Any, name: Any) -> Any:
    return page.locator(f'.lh-map [data-head="{name}"]')


def chosen(page: Any) -> list[str]:
    return page.eval_on_selector_all(".lh-map .lh-on", "cells => cells.map(cell => cell.dataset.head)")


def colour(page: Any, at: int) -> str:
    return page.locator(f'.lh-token[data-at="{at}"]').evaluate("token => getComputedStyle(token).backgroundColor")


def said(page: Any) -> str:
    return page.locator(".lh-said").inner_text()


def test_it_opens_on_the_best_head_and_colours_the_prompt(opened: Any, tmp_path: Path) -> None:
    one = opened(page(tmp_path, looks()))
    best, look = scores()["locos"].top(1)[0], looks()[0]
    assert one.locator(".lh-map [data-head]").count() == 8
    assert chosen(one) == [str(best)]
    assert one.locator(".lh-token").count() == look.rows[0] + 1
    assert one.locator(".lh-token.needle").count() == look.needle[1] - look.needle[0]  # type: ignore[index]
    phi = look.phi[look.places([best])[0], 0].float().numpy()
    strongest = int(np.abs(phi).argmax())
    clear, faint = colour(one, strongest), colour(one, int(np.abs(phi[: look.rows[0]]).argmin()))
    assert "0.7" in clear
    assert float(re.findall(r"[\d.]+", faint)[-1]) < 0.1 or faint == "rgba(0, 0, 0, 0)"
    blue, orange = ([float(x) for x in re.findall(r"[\d.]+", clear)][at] for at in (2, 0))
    assert (blue > orange) == (phi[strongest] > 0)


def test_hovering_says_value_position_and_share(opened: Any, tmp_path: Path) -> None:
    one, best = opened(page(tmp_path, looks())), scores()["locos"].top(1)[0]
    frame = looks()[0].by_token([best])
    row = frame.iloc[int(frame["share"].to_numpy().argmax())]
    one.locator(f'.lh-token[data-at="{row["position"]}"]').hover()
    assert said(one).startswith(f"{row['position']} “")
    assert f"attention {row['attention']:.3f}" in said(one)
    assert f"{100 * row['share']:.1f} % of all" in said(one)
    head(one, WRITER).hover()
    assert said(one).startswith(f"{WRITER}: LOCOS ")
    assert f"rank {scores()['locos'].ranking().index(WRITER) + 1}" in said(one)
    assert "[" in said(one)


def test_clicks_choose_and_shift_adds(opened: Any, tmp_path: Path) -> None:
    one = opened(page(tmp_path, looks()))
    head(one, WRITER).click()
    assert chosen(one) == [str(WRITER)]
    head(one, COPIER).click(modifiers=["Shift"])
    assert set(chosen(one)) == {str(WRITER), str(COPIER)}
    assert f"{WRITER}, {COPIER}, summed" in one.locator(".lh-prompt").inner_text()
    assert one.locator(".lh-top").count() == 2
    card = one.locator(".lh-card").inner_text()
    assert str(WRITER) in card
    assert str(COPIER) in card
    total = looks()[0].phi[looks()[0].places([WRITER, COPIER]), 0].float().sum()
    shown = one.locator(".lh-prompt .lh-note").inner_text()
    assert float(re.findall(r"Sum ([+−]\d+\.\d+)", shown)[0].replace("−", "-")) == pytest.approx(float(total), abs=0.02)
    head(one, COPIER).click(modifiers=["Shift"])
    assert chosen(one) == [str(WRITER)]
    head(one, WRITER).click(modifiers=["Shift"])
    assert chosen(one) == [str(WRITER)], "one head stays"


def test_the_keyboard_does_all_of_it(opened: Any, tmp_path: Path) -> None:
    one = opened(page(tmp_path, looks()))
    head(one, "L0H0").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        one.keyboard.press(key)
    assert one.evaluate("document.activeElement.dataset.head") == "L1H2"
    one.keyboard.press("Enter")
    assert chosen(one) == ["L1H2"]
    one.keyboard.press("ArrowUp")
    one.keyboard.press("Shift+Enter")
    assert set(chosen(one)) == {"L0H2", "L1H2"}
    one.keyboard.press("ArrowUp")
    assert one.evaluate("document.activeElement.dataset.head") == "L0H2", "the map has an edge"
    steps = one.locator(".lh-steps button")
    if steps.count() > 1:
        one.keyboard.press("]")
        assert steps.nth(1).get_attribute("aria-checked") == "true"
    assert one.locator('.lh-map [tabindex="0"]').count() == 1


def test_controls_keep_the_focus_and_their_keys(opened: Any, tmp_path: Path) -> None:
    """A notebook takes plain keys for itself, unless a control stops them; and a redraw must not throw the focus away."""
    one = opened(with_kernel(tmp_path))
    one.evaluate(
        "document.body.addEventListener('keydown', event => (window.heard = [...(window.heard ?? []), event.key]))"
    )
    for label in ("score", "leave out the first token"):
        control = one.get_by_label(label, exact=True)
        control.focus()
        one.keyboard.press("ArrowDown")
        if label != "score":
            one.keyboard.press("Space")
        assert one.evaluate("document.activeElement.getAttribute('aria-label')") == label
    assert one.get_by_label("leave out the first token").is_checked()
    one.locator(".lh-text").focus()
    one.keyboard.press("ArrowDown")
    for _ in range(3):
        one.keyboard.press("ArrowRight")
    assert said(one).startswith("2 “")
    assert one.locator(".lh-said").get_attribute("aria-live") == "polite"
    one.keyboard.press("]")
    assert one.evaluate("document.activeElement.className") == "lh-text"
    assert one.evaluate("window.heard") is None
    button = one.get_by_role("button", name="ablate (zero)", exact=True)
    button.click()
    one.evaluate("window.model.set('busy', 'running'); window.model.set('busy', '')")
    assert one.evaluate("document.activeElement.textContent") == "ablate (zero)"


def test_scores_are_switched_and_drawn_against_each_other(opened: Any, tmp_path: Path) -> None:
    one = opened(page(tmp_path, looks()))
    before = head(one, WRITER).evaluate("cell => cell.style.background")
    one.get_by_label("score", exact=True).select_option("copy")
    assert head(one, WRITER).evaluate("cell => cell.style.background") != before
    one.locator(".lh-map").get_by_label("as", exact=True).select_option("scatter")
    assert one.locator(".lh-map circle").count() == 8
    one.get_by_label("against", exact=True).select_option("locos")
    head(one, COPIER).click()
    assert chosen(one) == [str(COPIER)]
    values = [(float(head(one, name).get_attribute("cy")), scores()["locos"][name]) for name in (WRITER, "L1H1")]
    assert (values[0][0] < values[1][0]) == (values[0][1] > values[1][1]), "higher scores are drawn higher"


def test_a_card_holds_kinds_partners_window_and_group(opened: Any, tmp_path: Path) -> None:
    labels = {"kind": "induction", "partner in other": "L3H1 (distance 0.25)"}
    cards = {str(WRITER): labels}
    one = opened(page(tmp_path, looks(), card_labels=list(labels), cards=cards, windows=[None, 128], kv=2))
    head(one, WRITER).click()
    card = one.locator(".lh-card tr").all_inner_texts()
    rows = dict(line.split("\t") for line in card[1:])
    assert rows["kind"] == "induction"
    assert rows["partner in other"] == "L3H1 (distance 0.25)"
    assert rows["kv head"] == str(WRITER.head // 2)
    assert rows["window"] == ("128" if WRITER.layer else "all")
    head(one, COPIER).click()
    assert one.locator(".lh-card").get_by_text("–").count() == 2, "what a head has not"


def test_trials_and_steps_are_switched(opened: Any, tmp_path: Path) -> None:
    one = opened(page(tmp_path, looks()))
    first = one.locator(".lh-text").inner_text()
    one.locator(".lh-prompt").get_by_label("trial", exact=True).select_option("1")
    assert one.locator(".lh-text").inner_text() != first
    assert len(chosen(one)) == 1


def test_the_sink_is_left_out_on_demand(opened: Any, tmp_path: Path) -> None:
    one = opened(page(tmp_path, looks()))
    one.get_by_label("leave out the first token").check()
    assert colour(one, 0) == "rgba(0, 0, 0, 0)"
    assert one.locator('.lh-token[data-at="0"]').evaluate("token => token.style.getPropertyValue('--lh-bar')") == "0"


def test_a_head_that_the_page_does_not_hold_is_said(opened: Any, tmp_path: Path) -> None:
    look = looks()[0]
    few = replace(look, heads=look.heads[:2], **{n: getattr(look, n)[:2] for n in ("attention", "phi", "z", "writes")})
    few = replace(few, top_ids=look.top_ids[:2], top_logits=look.top_logits[:2])
    one = opened(page(tmp_path, [few]))
    head(one, WRITER).click()
    assert (
        f"This page does not hold what {WRITER} read, but that of L0H0, L0H1" in one.locator(".lh-prompt").inner_text()
    )
    assert str(WRITER) in one.locator(".lh-card").inner_text()


def test_markup_is_shown_as_text(opened: Any, tmp_path: Path) -> None:
    one = opened(page(tmp_path, [hostile(), looks()[1]], model=MARKUP, card_labels=[MARKUP], ablated_unit=MARKUP))
    assert one.evaluate("window.hacked") is None
    assert one.locator("img").count() == 0
    assert "onerror" in one.locator(".lh-text").inner_text()
    assert "onerror" in one.locator(".lh-tops").inner_text()


def test_dark_mode_is_readable(opened: Any, tmp_path: Path) -> None:
    def contrast(one: Any, selector: str) -> float:
        def light(rgb: list[float]) -> float:
            parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb)]
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

        script = (
            "node => [getComputedStyle(node).color, getComputedStyle(node.closest('.lh-explorer')).backgroundColor]"
        )
        ink, paper = (
            light([float(x) for x in re.findall(r"[\d.]+", c)[:3]])
            for c in one.locator(selector).first.evaluate(script)
        )
        return (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05)

    papers = []
    for scheme in ("light", "dark"):
        one = opened(with_kernel(tmp_path), color_scheme=scheme)
        papers.append(one.locator(".lh-explorer").evaluate("node => getComputedStyle(node).backgroundColor"))
        assert contrast(one, ".lh-card td") >= 7
        assert contrast(one, ".lh-note") >= 4.5
    assert papers[0] != papers[1]
    one.evaluate("document.body.setAttribute('data-jp-theme-light', 'true')")
    assert one.locator(".lh-explorer").evaluate("node => getComputedStyle(node).backgroundColor") == papers[0]


def test_it_fits_a_narrow_page(opened: Any, tmp_path: Path) -> None:
    one = opened(page(tmp_path, looks()))
    before = one.locator("canvas").evaluate("canvas => canvas.width")
    one.set_viewport_size({"width": 480, "height": 900})
    one.wait_for_timeout(200)
    assert one.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert one.locator("canvas").evaluate("canvas => canvas.width") != before
    one.set_viewport_size({"width": 1250, "height": 900})
    for width in (700, 560, 360):  # A notebook's output, in a window that stays wide.
        one.evaluate(
            "width => (document.querySelector('.lh-explorer').parentElement.style.width = `${width}px`)", width
        )
        assert one.locator(".lh-explorer").evaluate("node => node.scrollWidth <= node.clientWidth"), width


def test_eight_thousand_tokens_stay_fluent(opened: Any, tmp_path: Path) -> None:
    """Twenty times the tokens of a short prompt; what is near zero is folded, and unfolds."""
    script = """() => {
      const [one, other] = [...document.querySelectorAll('.lh-map [data-head]')].slice(0, 2);
      const times = [];
      for (let at = 0; at < 9; at++) {
        const begun = performance.now();
        (at % 2 ? one : other).click();
        document.body.offsetHeight;
        times.push(performance.now() - begun);
      }
      return times.sort((a, b) => a - b)[4];
    }"""
    times = {}
    for n in (400, 8000):
        one = opened(page(tmp_path, [long(n)]))
        times[n] = one.evaluate(script)
    folds = one.locator(".lh-fold")
    assert folds.count() > 50
    shown, hidden = one.locator(".lh-token").count(), int(re.findall(r"\d+", folds.first.inner_text())[0])
    folds.first.click()
    assert one.locator(".lh-token").count() == shown + hidden
    one.get_by_label("leave out the first token").check()
    assert one.locator(".lh-token").count() >= shown + hidden, "what was opened stays open"
    assert one.locator(".lh-token.needle").count() == 5
    assert times[8000] < 30 * times[400]


def test_buttons_ask_the_kernel_and_show_its_answers(opened: Any, tmp_path: Path) -> None:
    one = opened(with_kernel(tmp_path))
    buttons = {
        name: one.get_by_role("button", name=name, exact=True) for name in ("ablate (zero)", "ablate (mean)", "patch")
    }
    assert buttons["ablate (mean)"].is_disabled()
    assert buttons["ablate (mean)"].get_attribute("title") == "needs others"
    buttons["ablate (zero)"].click()
    buttons["patch"].click()
    about = {"heads": chosen(one), "trial": 0}
    assert one.evaluate("window.sent") == [{"run": "zero", **about}], "until the kernel answers, one request is enough"
    one.evaluate("window.model.set('failed', 'x'); window.model.set('failed', '')")
    buttons["patch"].click()
    assert one.evaluate("window.sent") == [{"run": "zero", **about}, {"run": "patch", **about}]
    one.evaluate("window.model.set('busy', 'running zero')")
    assert buttons["ablate (zero)"].is_disabled()
    assert "running zero" in one.locator(".lh-tried").inner_text()
    row = {
        "heads": ["L0H1"],
        "trial": "t",
        "kind": "zero",
        "before": -0.25,
        "after": -3.5,
        "text_before": "a",
        "text_after": MARKUP,
    }
    row |= {"random": -0.3, "random_low": -0.5, "random_high": -0.1}
    one.evaluate("row => { window.model.set('busy', ''); window.model.set('history', [row]); }", row)
    text = one.locator(".lh-tried").inner_text()
    assert "−0.25 → −3.50 (−3.25)" in text
    assert "−0.30 [−0.50, −0.10]" in text
    assert "onerror" in text
    one.evaluate("window.model.set('failed', 'mean needs others')")
    assert one.get_by_role("alert").inner_text() == "mean needs others"
    assert not buttons["ablate (zero)"].is_disabled()


def test_python_moves_the_page_and_closing_it_lets_go(opened: Any, tmp_path: Path) -> None:
    one = opened(with_kernel(tmp_path))
    one.evaluate("window.model.set('heads', ['L0H3'])")
    assert chosen(one) == ["L0H3"]
    assert one.evaluate("[...window.model.calls.values()].flat().length") > 5
    one.evaluate("window.stop()")
    assert one.evaluate("[...window.model.calls.values()].flat().length") == 0


def test_a_report_carries_explorers_and_figures_under_its_own_policy(opened: Any, tmp_path: Path) -> None:
    """What the policy forbids is an error in the console, and `opened` hears it."""
    figure = Figure(scores()["locos"].plot())
    data = recorded.record(about(trials=[look.trial for look in looks()]), looks())
    sections = [Section(name, figures=[figure], explorer=data) for name in ("one", "two")]
    file = write_report(tmp_path / "report.html", "A report", Summary("m", 1, [], "verdict"), sections)
    one = opened(file)
    one.wait_for_selector(".main-svg")
    assert one.locator(".lh-explorer").count() == 2
    cells = one.locator(f'.lh-map [data-head="{WRITER}"]')
    cells.nth(1).click()
    chosen = [cells.nth(at).get_attribute("aria-selected") for at in (0, 1)]
    assert chosen[1] == "true"
    assert chosen[0] == str(str(scores()["locos"].top(1)[0]) == str(WRITER)).lower(), "each has a selection of its own"


def test_the_module_asks_for_nothing_and_sets_no_markup() -> None:
    loading = r"https?://[^\"'\s)]+|@import|\bfetch\(|XMLHttpRequest|\bimport\(|innerHTML|insertAdjacentHTML"
    for name in ("explorer.js", "explorer.css"):
        assert set(re.findall(loading, asset(name))) <= {"http://www.w3.org/2000/svg"}
    assert len(asset("explorer.js").splitlines()) <= 650
