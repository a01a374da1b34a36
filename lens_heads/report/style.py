"""The style sheet of the page, and the script that draws its figures."""

SCRIPT = """
for (const source of document.querySelectorAll('script[data-figure]')) {
  const spec = JSON.parse(source.textContent);
  Plotly.newPlot(source.dataset.figure, spec.data, {...spec.layout, autosize: true}, {
    responsive: true, displaylogo: false, modeBarButtons: [['toImage', 'resetScale2d']],
    toImageButtonOptions: {format: 'svg', filename: source.dataset.figure},
  });
}
"""

CSS = """
:root { --ink: #1f2328; --soft: #57606a; --line: #d8dee4; --wash: #f6f8fa; --accent: #0a5a96; }
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1rem clamp(1rem, 3vw, 2.5rem) 3rem; max-width: 88rem; background: #fff;
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: clamp(1.5rem, 4vw, 2rem); line-height: 1.2; margin: .25rem 0 .5rem; text-wrap: balance; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .5rem; }
p { margin: .5rem 0; max-width: 46rem; }
a, summary { color: var(--accent); }
header { border-bottom: 1px solid var(--line); padding-bottom: .75rem; }
header figure { margin: .25rem 0; }
.verdict { font-size: 1.15rem; line-height: 1.4; margin: 0; max-width: 68rem; padding-left: .9rem;
  border-left: 4px solid var(--accent); }
.facts { margin: 0 0 1rem; }
.facts div { display: grid; grid-template-columns: 7.5rem 1fr; gap: .75rem; padding: .2rem 0; }
.facts dt { color: var(--soft); } .facts dd { margin: 0; overflow-wrap: anywhere; max-width: 60rem; }
.head { display: inline-block; font: .85em/1.5 ui-monospace, Menlo, Consolas, monospace; background: #e7f0f8;
  border-radius: 4px; padding: 0 .4em; margin: 0 .1em .15em 0; }
.cards { display: flex; flex-wrap: wrap; gap: .5rem .75rem; margin: .75rem 0; }
.card { flex: 1 1 11rem; max-width: 27rem; border: 1px solid var(--line); border-radius: 8px; padding: .4rem .9rem;
  break-inside: avoid; overflow-wrap: anywhere; }
.label, .note { color: var(--soft); font-size: .85rem; line-height: 1.35; }
.value, .interval, table { font-variant-numeric: tabular-nums; }
.value { font-size: 1.6rem; font-weight: 600; line-height: 1.25; } .interval { font-size: .95rem; line-height: 1.35; }
nav { margin: .75rem 0; }
nav ol { margin: .25rem 0; padding-left: 1.4rem; columns: 2; font-size: .95rem; }
section { margin: 2.5rem 0 0; } nav + main > section:first-child { margin-top: 1.5rem; }
.side { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); gap: 0 1.5rem; }
figure { margin: 1.25rem 0; min-width: 0; break-inside: avoid; } .figure { width: 100%; }
figcaption, .caption { color: var(--soft); font-size: .9rem; line-height: 1.45; max-width: 46rem; margin: .25rem 0; }
.table { margin: 1.25rem 0; } .scroll { overflow: auto; border-block: 2px solid var(--ink); }
.scroll.long { max-height: 32rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem; border-bottom: 1px solid var(--line); }
th { position: sticky; top: 0; background: #fff; white-space: nowrap; box-shadow: inset 0 -1px var(--ink); }
td { white-space: nowrap; } .number { text-align: right; } .prose { white-space: normal; min-width: 14rem; }
tbody tr:last-child td { border-bottom: 0; }
.texts table { table-layout: fixed; min-width: 40rem; } .texts td { overflow-wrap: anywhere; white-space: pre-line; }
.texts th:nth-child(2) { width: 18%; } .texts th:nth-child(n+3) { width: 26%; }
td.right { background: #e6f4ef; } td.wrong { background: #fcece3; }
.right .sign, span.right { color: #00674f; font-weight: 600; }
.wrong .sign, span.wrong { color: #a63c06; font-weight: 600; }
.tally, .versions { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.5rem; padding: 0; margin: .5rem 0; }
.tally { font-size: .9rem; } details { margin: .5rem 0; } summary { cursor: pointer; }
footer { margin-top: 3rem; padding-top: 1rem; border-top: 1px solid var(--line); color: var(--soft);
  font-size: .85rem; }
footer h2 { font-size: 1rem; color: var(--ink); }
pre { background: var(--wash); padding: .6rem .8rem; border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere;
  margin: .4rem 0; }
@media (max-width: 40rem) { nav ol { columns: 1; } .facts div { grid-template-columns: 1fr; gap: 0; } }
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; } nav { display: none; } h2 { break-after: avoid; }
  .scroll, .scroll.long { max-height: none; overflow: visible; } th { position: static; }
  td { white-space: normal; } tr { break-inside: avoid; }
  .figure { zoom: .72; } .modebar-container { display: none; } * { print-color-adjust: exact; }
}
"""
