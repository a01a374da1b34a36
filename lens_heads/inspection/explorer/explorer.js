// The explorer of attention heads: a map of all heads, what the chosen ones read and write in a prompt, and, with a kernel,
// what happens without them. One module without dependencies: `render` is anywidget's entry, `offline` shows a page's own data.
//
// State is the model's traits, so that a notebook and a page differ only in who fills `look`, `rows` and `rows_of`. Every text
// is set as text, never as markup.

const SIGNIFICANT = 0.01; // A token below this share of the largest is folded, where many such follow each other.
const FOLDED = 16; // The shortest row of tokens that is folded.
const LONG = 300; // Prompts up to this length are shown whole.
const SHOWN = 6; // Heads whose promoted tokens are listed.

// ---------------------------------------------------------------------------------------------------------------- elements

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name === "style") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

function draw(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function field(label, control) {
  control.setAttribute("aria-label", label);
  const parts = [make("span", {}, label), control];
  return make("label", { class: "lh-field" }, ...(control.type === "checkbox" ? parts.reverse() : parts));
}

function select(options, chosen, change) {
  const node = make("select", { onchange: () => change(node.value) });
  for (const [value, text] of options) node.append(make("option", { value, selected: value === chosen }, text));
  return node;
}

// ----------------------------------------------------------------------------------------------------------------- numbers

function signed(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value).toFixed(digits);
  return (Number(size) === 0 ? "" : value > 0 ? "+" : "−") + size;
}

function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  const text = size === 0 || (size >= 0.001 && size < 10000) ? size.toPrecision(3).replace(/\.?0+$/, "") : size.toExponential(1);
  return (value < 0 ? "−" : "") + text;
}

const halves = (() => {
  let table = null;
  return (bytes) => {
    if (table === null) {
      table = new Float32Array(65536);
      for (let bits = 0; bits < 65536; bits++) {
        const exponent = (bits >> 10) & 31;
        const fraction = bits & 1023;
        const size = exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? NaN : (1 + fraction / 1024) * 2 ** (exponent - 15);
        table[bits] = bits & 32768 ? -size : size;
      }
    }
    const view = bytes instanceof DataView ? bytes : new DataView(bytes.buffer ?? bytes, bytes.byteOffset ?? 0, bytes.byteLength);
    const found = new Float32Array(view.byteLength / 2);
    for (let at = 0; at < found.length; at++) found[at] = table[view.getUint16(2 * at, true)];
    return found;
  };
})();

function largest(values, from = 0) {
  let found = 0;
  for (let at = from; at < values.length; at++) found = Math.max(found, Math.abs(values[at]));
  return found;
}

function visible(word) {
  return word.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, "\u00b7");
}

const quoted = (word) => `“${visible(word)}”`;

// A colour of the diverging scale: blue for positive, orange for negative; the style sheet has the two for light and dark.
function tint(share) {
  const strength = Math.min(1, Math.abs(share)) ** 0.7;
  return `rgb(var(${share < 0 ? "--lh-minus" : "--lh-plus"}) / ${(0.7 * strength).toFixed(3)})`;
}

const parsed = (name) => name.slice(1).split("H").map(Number);

// ------------------------------------------------------------------------------------------------------------------- state

// What is derived from traits: the rows of the chosen heads at the current step, summed over heads.
function current(model) {
  const look = model.get("look");
  const rows = model.get("rows_of");
  if (!look || !look.words || !rows || rows.trial !== model.get("trial") || !rows.heads.length) return null;
  const step = Math.min(model.get("step"), look.produced.length - 1);
  const [steps, positions] = [look.produced.length, look.words.length];
  const values = halves(model.get("rows"));
  const attention = new Float32Array(positions);
  const phi = new Float32Array(positions);
  rows.heads.forEach((_, head) => {
    const start = (head * steps + step) * 2 * positions;
    for (let at = 0; at < positions; at++) {
      attention[at] += values[start + at] / rows.heads.length;
      phi[at] += values[start + positions + at];
    }
  });
  const whole = phi.reduce((all, each) => all + Math.abs(each), 0);
  return { look, rows, step, attention, phi, whole, end: look.rows[step] + 1 };
}

function part(look, at) {
  for (const name of ["needle", "question"]) {
    const span = look[name];
    if (span && at >= span[0] && at < span[1]) return name;
  }
  return "";
}

// ------------------------------------------------------------------------------------------------------------------- panels

class Explorer {
  constructor(model, el) {
    this.model = model;
    this.el = el;
    this.sink = false; // Whether the first position is folded away.
    this.open = new Set(); // Folds that the reader opened.
    this.cleanup = [];
    this.build();
    const on = (names, redraw) => {
      for (const name of names) {
        const call = () => redraw.call(this);
        model.on(`change:${name}`, call);
        this.cleanup.push(() => model.off(`change:${name}`, call));
      }
    };
    on(["method", "across", "view"], this.map);
    on(["heads"], this.choice);
    on(["trial"], () => this.open.clear());
    on(["rows_of", "step"], this.prompt); // `look` and `rows` come in the same message as `rows_of`.
    on(["history", "busy", "failed"], this.experiments);
    on(["about"], this.build);
    if (typeof ResizeObserver !== "undefined") {
      const observer = new ResizeObserver(() => this.profile());
      observer.observe(el);
      this.cleanup.push(() => observer.disconnect());
    }
  }

  set(changes) {
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.model.save_changes();
  }

  score(name) {
    return this.scores.find((score) => score.name === this.model.get(name)) ?? this.scores[0];
  }

  build() {
    this.about = this.model.get("about");
    this.scores = this.about.scores;
    this.parts = {};
    const box = (name, title, ...children) => {
      this.parts[name] = make("div", { class: `lh-${name}` });
      return make("section", { class: `lh-box lh-box-${name}`, "aria-label": title }, make("h3", {}, title), ...children, this.parts[name]);
    };
    this.said = make("p", { class: "lh-said", role: "status", "aria-live": "off" }, "\u00a0");
    const root = make(
      "div",
      { class: "lh-explorer", role: "region", "aria-label": `Attention heads of ${this.about.model}`, onkeydown: (event) => this.keys(event) },
      make("div", { class: "lh-left" }, box("map", "Heads"), box("card", "Chosen"), this.about.ablated.length ? box("ablated", "Ablated together") : null),
      make("div", { class: "lh-right" }, box("prompt", "What they read"), box("tops", "What they write"), box("tried", "Without them")),
      this.said,
    );
    this.el.replaceChildren(root);
    this.map();
    this.choice();
    this.prompt();
    this.experiments();
    if (this.parts.ablated) this.ablated();
  }

  // What is under the pointer; read aloud only where nothing else would read it.
  say(text, aloud = false) {
    this.said.setAttribute("aria-live", aloud ? "polite" : "off");
    this.said.textContent = text || "\u00a0";
  }

  // Draw a panel anew; a control that had the focus passes it on to the one of the same name.
  redraw(panel, ...nodes) {
    const name = (node) => node.getAttribute("aria-label") ?? node.textContent;
    const controls = () => [...panel.querySelectorAll("select, input, button, .lh-text")];
    const focused = controls().find((node) => node === panel.getRootNode().activeElement);
    const top = panel.querySelector(".lh-text")?.scrollTop ?? 0;
    panel.replaceChildren(...nodes.filter(Boolean));
    if (focused) controls().find((node) => name(node) === name(focused))?.focus({ preventScroll: true });
    if (top && panel.querySelector(".lh-text")) panel.querySelector(".lh-text").scrollTop = top;
  }

  // ---- heads

  choose(name, more) {
    const now = this.model.get("heads");
    if (!more) return this.set({ heads: [name] });
    const left = now.filter((head) => head !== name);
    if (left.length === now.length) left.push(name);
    if (left.length) this.set({ heads: left });
  }

  // A head's score with its interval and rank.
  valued(score, name) {
    const [layer, head] = parsed(name);
    const [low, high] = [score.low?.[layer][head] ?? null, score.high?.[layer][head] ?? null];
    const interval = low === null ? "" : ` [${short(low)}, ${short(high)}]`;
    return `${short(score.values[layer][head])}${interval}, rank ${score.ranks[layer][head] ?? "–"}`;
  }

  described(name) {
    return `${name}: ${this.scores.map((score) => `${score.label} ${this.valued(score, name)}`).join("; ")}`;
  }

  map() {
    const { about, model } = this;
    const score = this.score("method");
    const scatter = model.get("view") === "scatter" && this.scores.length > 1;
    const options = this.scores.map((one) => [one.name, one.label]);
    const tools = make("div", { class: "lh-tools" }, field("score", select(options, score?.name, (method) => this.set({ method }))));
    if (this.scores.length > 1) {
      const views = [["map", "map"], ["scatter", "two scores"]];
      tools.append(field("as", select(views, scatter ? "scatter" : "map", (view) => this.set({ view }))));
      if (scatter) tools.append(field("against", select(options, this.score("across").name, (across) => this.set({ across }))));
    }
    const shown = scatter ? this.scatter(score, this.score("across")) : this.grid(score);
    this.redraw(this.parts.map, tools, shown, make("p", { class: "lh-note" }, this.legend(score)));
    this.marked();
  }

  legend(score) {
    const unit = score.unit ? ` (${score.unit})` : "";
    const best = `the ${score.best === "lowest" ? "lowest" : "highest"} score ranks first`;
    return `${score.label}${unit}: blue above zero, orange below; ${best}. Arrows move, Enter chooses, Shift adds, [ and ] change the step.`;
  }

  cell(tag, name, attributes) {
    const events = {
      onclick: (event) => this.choose(name, event.shiftKey || event.ctrlKey || event.metaKey),
      onpointerenter: () => this.say(this.described(name)),
      onfocus: () => this.say(this.described(name)),
    };
    const given = { "data-head": name, tabindex: -1, "aria-label": this.described(name), ...attributes };
    if (tag !== "circle") return make(tag, { ...given, ...events });
    const node = draw(tag, given);
    for (const [event, call] of Object.entries(events)) node.addEventListener(event.slice(2), call);
    return node;
  }

  grid(score) {
    const { layers, heads } = this.about;
    const top = largest(score.values.flat().filter((value) => value !== null)) || 1;
    const columns = { "--lh-columns": heads };
    const grid = make("div", { class: "lh-grid", role: "grid", "aria-label": `${score.label} of every head`, style: columns });
    const head = make("div", { role: "row", class: "lh-row" }, make("span", { class: "lh-axis", role: "columnheader" }, ""));
    for (let at = 0; at < heads; at++) head.append(make("span", { class: "lh-axis", role: "columnheader" }, `H${at}`));
    grid.append(head);
    for (let layer = 0; layer < layers; layer++) {
      const row = make("div", { role: "row", class: "lh-row" }, make("span", { class: "lh-axis", role: "rowheader" }, `L${layer}`));
      for (let at = 0; at < heads; at++) {
        const value = score.values[layer][at];
        const style = { background: value === null ? "transparent" : tint(value / top) };
        row.append(this.cell("div", `L${layer}H${at}`, { class: "lh-cell", role: "gridcell", style }));
      }
      grid.append(row);
    }
    return grid;
  }

  scatter(one, other) {
    const [width, height, edge] = [360, 260, 48];
    const range = (score) => {
      const values = score.values.flat().filter((value) => value !== null);
      const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
      return [low, high > low ? high : low + 1];
    };
    const [xs, ys] = [range(one), range(other)];
    const x = (value) => edge + ((value - xs[0]) / (xs[1] - xs[0])) * (width - edge - 8);
    const y = (value) => height - edge - ((value - ys[0]) / (ys[1] - ys[0])) * (height - edge - 8);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "lh-scatter", role: "group", "aria-label": `${other.label} against ${one.label}` });
    svg.append(draw("line", { x1: x(0), x2: x(0), y1: 8, y2: height - edge, class: "lh-zero" }));
    svg.append(draw("line", { x1: edge, x2: width - 8, y1: y(0), y2: y(0), class: "lh-zero" }));
    const label = (text, at) => svg.append(draw("text", { ...at, class: "lh-tick" }, text));
    label(one.label, { x: width / 2, y: height - 6, "text-anchor": "middle" });
    label(other.label, { x: 10, y: height / 2, "text-anchor": "middle", transform: `rotate(-90 10 ${height / 2})` });
    for (const end of [0, 1]) {
      label(short(xs[end]), { x: x(xs[end]), y: height - edge + 13, "text-anchor": end ? "end" : "start" });
      label(short(ys[end]), { x: edge - 4, y: y(ys[end]) + 4, "text-anchor": "end" });
    }
    one.values.forEach((row, layer) =>
      row.forEach((value, head) => {
        const against = other.values[layer][head];
        if (value === null || against === null) return;
        svg.append(this.cell("circle", `L${layer}H${head}`, { cx: x(value), cy: y(against), r: 4.5, class: "lh-dot", role: "button" }));
      }),
    );
    return svg;
  }

  marked() {
    const chosen = new Set(this.model.get("heads"));
    const cells = [...this.parts.map.querySelectorAll("[data-head]")];
    for (const cell of cells) {
      const on = chosen.has(cell.dataset.head);
      cell.setAttribute(cell.getAttribute("role") === "gridcell" ? "aria-selected" : "aria-pressed", on);
      cell.classList.toggle("lh-on", on);
    }
    const reached = cells.find((cell) => cell.dataset.head === this.model.get("heads").at(-1)) ?? cells[0];
    for (const cell of cells) cell.setAttribute("tabindex", cell === reached ? 0 : -1);
  }

  choice() {
    this.marked();
    const heads = this.model.get("heads");
    const table = make("table", {});
    const listed = heads.slice(0, SHOWN);
    const line = (label, values) => table.append(make("tr", {}, make("th", { scope: "row" }, label), ...values.map((value) => make("td", {}, value))));
    line("", listed);
    for (const score of this.scores) line(score.label, listed.map((name) => this.valued(score, name)));
    line("kv head", listed.map((name) => String(Math.floor((parsed(name)[1] * this.about.kv) / this.about.heads))));
    line("window", listed.map((name) => String(this.about.windows[parsed(name)[0]] ?? "all")));
    for (const label of this.about.card_labels) line(label, listed.map((name) => this.about.cards[name]?.[label] ?? "–"));
    const more = heads.length > SHOWN ? make("p", { class: "lh-note" }, `and ${heads.slice(SHOWN).join(", ")}`) : null;
    this.redraw(this.parts.card, make("div", { class: "lh-wide" }, table), more);
  }

  ablated() {
    const table = make("table", {}, make("tr", {}, ...["heads", "k", this.about.ablated_unit].map((text) => make("th", {}, text))));
    for (const row of this.about.ablated) {
      const interval = row.low === null ? "" : ` [${signed(row.low)}, ${signed(row.high)}]`;
      table.append(make("tr", {}, make("td", {}, row.label), make("td", {}, String(row.k)), make("td", {}, signed(row.value) + interval)));
    }
    this.parts.ablated.replaceChildren(make("div", { class: "lh-wide" }, table));
  }

  keys(event) {
    // A notebook has shortcuts on plain keys, which a control or the text to scroll needs for itself.
    const control = event.target.closest("select, input, button, .lh-text");
    if (control && !event.ctrlKey && !event.metaKey && !event.altKey && !event.shiftKey) event.stopPropagation();
    const radio = event.target.getAttribute("role") === "radio";
    if (event.target.closest("select, input, button") && !radio) return;
    const step = this.model.get("step");
    const steps = this.model.get("look")?.produced?.length ?? 1;
    const by = { "[": -1, "]": 1, ...(radio ? { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 } : {}) }[event.key];
    if (by) {
      this.set({ step: Math.max(0, Math.min(steps - 1, step + by)) });
      if (radio) this.parts.prompt.querySelector('[aria-checked="true"]')?.focus();
      return event.preventDefault();
    }
    if (event.target.classList.contains("lh-text")) return this.read(event);
    const here = event.target.dataset?.head;
    if (!here) return;
    if (event.key === "Enter" || event.key === " ") {
      this.choose(here, event.shiftKey);
      return event.preventDefault();
    }
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move) return;
    const [layer, head] = parsed(here);
    const next = this.parts.map.querySelector(`[data-head="L${layer + move[0]}H${head + move[1]}"]`);
    if (next) {
      next.setAttribute("tabindex", 0);
      event.target.setAttribute("tabindex", -1);
      next.focus();
    }
    event.preventDefault();
  }

  // Arrows in the prompt move from token to token and say each.
  read(event) {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move || !this.seen) return;
    this.at = Math.max(0, Math.min(this.seen.end - 1, (this.at ?? -1) + move));
    this.parts.prompt.querySelector(".lh-here")?.classList.remove("lh-here");
    this.parts.prompt.querySelector(`[data-at="${this.at}"]`)?.classList.add("lh-here");
    this.say(this.position(this.seen, this.at), true);
    event.preventDefault();
  }

  // ---- prompt

  prompt() {
    const { model, about } = this;
    const look = model.get("look");
    const trials = about.trials.map((trial, at) => [String(at), visible(trial)]);
    const tools = make("div", { class: "lh-tools" });
    if (trials.length > 1) tools.append(field("trial", select(trials, String(model.get("trial")), (at) => this.set({ trial: Number(at), step: 0 }))));
    if (look?.produced) tools.append(this.steps(look));
    const seen = current(model);
    if (seen === null) {
      const note = model.get("rows_of")?.note || (look?.note ?? "Choose a head on the map.");
      this.redraw(this.parts.prompt, tools, make("p", { class: "lh-note" }, note));
      this.parts.tops.replaceChildren();
      return;
    }
    const fold = make("input", { type: "checkbox", onchange: () => ((this.sink = fold.checked), this.prompt()) });
    fold.checked = this.sink;
    tools.append(field("leave out the first token", fold));
    this.seen = seen;
    this.canvas = make("canvas", { class: "lh-profile", role: "img", "aria-label": "Attention above, contribution below, over the prompt" });
    const sum = [...seen.phi].reduce((all, each) => all + each, 0);
    const scale = largest(seen.phi, this.sink ? 1 : 0);
    const note = `${seen.rows.heads.join(", ")}${seen.rows.heads.length > 1 ? ", summed" : ""}. ${seen.rows.note} Colour: contribution φ to the logit of ${quoted(look.produced[seen.step])} (${about.direction}), blue raises, orange lowers, full at ${short(scale)} ${about.unit}; bar below: attention, full at ${short(largest(seen.attention, this.sink ? 1 : 0))}. Sum ${signed(sum)}.`;
    this.redraw(this.parts.prompt, tools, make("p", { class: "lh-note" }, note), this.canvas, this.text(seen, scale));
    this.profile();
    this.tops(seen);
  }

  steps(look) {
    const group = make("div", { class: "lh-steps", role: "radiogroup", "aria-label": "answer token" });
    look.produced.forEach((word, at) => {
      const on = at === Math.min(this.model.get("step"), look.produced.length - 1);
      const logprob = look.logprobs[at];
      const label = `${visible(word) || "·"}`;
      group.append(make("button", { type: "button", role: "radio", "aria-checked": String(on), "aria-label": `${label}, token ${at + 1}`, title: logprob === null ? null : `p = ${Math.exp(logprob).toFixed(2)}`, onclick: () => this.set({ step: at }) }, label));
    });
    return make("div", { class: "lh-field" }, make("span", {}, "answer token"), group);
  }

  text(seen, scale) {
    const { look, phi, attention, end } = seen;
    const first = this.sink ? 1 : 0;
    const most = largest(attention, first);
    const near = (at) => Math.abs(phi[at]) < SIGNIFICANT * scale && attention[at] < SIGNIFICANT * most;
    const node = make("div", { class: "lh-text", tabindex: 0, "aria-label": "The prompt, coloured by contribution" });
    const token = (at) => {
      const hidden = this.sink && at === 0;
      const style = { background: hidden ? "transparent" : tint(scale ? phi[at] / scale : 0), "--lh-bar": hidden ? 0 : Math.min(1, most ? attention[at] / most : 0).toFixed(3) };
      return make("span", { class: `lh-token ${part(look, at)}`, "data-at": at, style }, visible(look.words[at]));
    };
    for (let at = 0; at < end; ) {
      let stop = at;
      if (end > LONG) while (stop < end && !this.open.has(stop) && near(stop) && part(look, stop) === "") stop++;
      if (stop - at < FOLDED) {
        const next = Math.max(at + 1, stop);
        for (; at < next; at++) node.append(token(at));
        continue;
      }
      const from = at;
      const sum = phi.slice(from, stop).reduce((all, each) => all + each, 0);
      const fold = make("button", { type: "button", class: "lh-fold", onclick: () => {
        const inside = document.createDocumentFragment();
        for (let each = from; each < stop; each++) {
          inside.append(token(each));
          this.open.add(each);
        }
        fold.replaceWith(inside);
        node.focus();
      } }, `… ${stop - from} tokens, ${signed(sum)} …`);
      node.append(fold);
      at = stop;
    }
    node.addEventListener("pointerover", ({ target: { dataset } }) => dataset?.at && this.say(this.position(seen, Number(dataset.at))));
    return node;
  }

  position({ look, phi, attention, whole }, at) {
    const inside = part(look, at);
    const share = whole ? (100 * Math.abs(phi[at])) / whole : 0;
    return `${at} ${quoted(look.words[at])}${inside ? ` (${inside})` : ""}: attention ${attention[at].toFixed(3)}, φ ${signed(phi[at], 3)} ${this.about.unit}, ${share.toFixed(1)} % of all |φ|`;
  }

  profile() {
    const { canvas, seen } = this;
    if (!canvas?.isConnected || !seen) return;
    const [width, height] = [Math.max(120, canvas.clientWidth), 72];
    const ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const style = getComputedStyle(canvas);
    const ink = (name) => `rgb(${style.getPropertyValue(name).trim().replace(/\s+/g, ",")})`;
    const first = this.sink ? 1 : 0;
    const [most, scale] = [largest(seen.attention, first) || 1, largest(seen.phi, first) || 1];
    const middle = height / 2;
    const bar = Math.max(1, width / seen.end);
    for (const name of ["needle", "question"]) {
      const span = seen.look[name];
      if (!span) continue;
      pen.fillStyle = ink(name === "needle" ? "--lh-needle" : "--lh-question");
      pen.globalAlpha = 0.18;
      pen.fillRect((span[0] / seen.end) * width, 0, Math.max(2, ((span[1] - span[0]) / seen.end) * width), height);
    }
    pen.globalAlpha = 1;
    pen.fillStyle = ink("--lh-ink");
    pen.fillRect(0, middle, width, 0.5);
    for (let at = first; at < seen.end; at++) {
      const x = (at / seen.end) * width;
      pen.fillStyle = ink("--lh-ink");
      pen.fillRect(x, middle - (seen.attention[at] / most) * (middle - 2), bar, (seen.attention[at] / most) * (middle - 2));
      pen.fillStyle = ink(seen.phi[at] < 0 ? "--lh-minus" : "--lh-plus");
      const deep = (Math.abs(seen.phi[at]) / scale) * (middle - 2);
      pen.fillRect(x, middle + 1, bar, deep);
    }
  }

  tops({ rows, step, look }) {
    const lists = rows.heads.slice(0, SHOWN).map((name, at) => {
      const top = rows.tops[at][step];
      const side = (title, pairs) => make("div", {}, make("h4", {}, title), make("ol", {}, ...pairs.filter(([, value]) => Math.abs(value) >= 0.005).map(([word, value]) => make("li", {}, make("code", {}, visible(word)), ` ${signed(value)}`))));
      return make("div", { class: "lh-top" }, make("strong", {}, name), make("div", { class: "lh-sides" }, side("raises", top.raises), side("lowers", top.lowers)));
    });
    const note = `At the row that produces ${quoted(look.produced[step])}: each write alone, normalised, through the unembedding. A direction: sizes do not compare between heads.`;
    this.parts.tops.replaceChildren(make("p", { class: "lh-note" }, note), make("div", { class: "lh-tops-list" }, ...lists));
  }

  // ---- experiments

  experiments() {
    const { model, about } = this;
    const busy = model.get("busy");
    const history = model.get("history");
    const here = [];
    if (!busy) this.waiting = false;
    const names = { mean: "ablate (mean)", zero: "ablate (zero)", patch: "patch" };
    if (about.experiments.length) {
      // A click may overtake a choice that is still on its way, so it says what it is about.
      const ask = (run) => {
        if (busy || this.waiting) return;
        this.waiting = true;
        model.send({ run, heads: model.get("heads"), trial: model.get("trial") });
      };
      const buttons = about.experiments.map(([kind, why]) =>
        make("button", { type: "button", disabled: Boolean(why), "aria-disabled": busy ? "true" : null, title: why || null, onclick: () => ask(kind) }, names[kind]),
      );
      here.push(make("div", { class: "lh-tools" }, ...buttons, make("span", { class: "lh-busy" }, busy)));
    } else here.push(make("p", { class: "lh-note" }, "Ablating and patching need a kernel: open the explorer in a notebook with lh.explore(...)."));
    if (model.get("failed")) here.push(make("p", { class: "lh-failed", role: "alert" }, model.get("failed")));
    if (history.length) {
      const means = about.reference ? ` (means of ${about.reference})` : "";
      here.push(make("p", { class: "lh-note" }, `Ablation${means}: the answer as it is → without the heads. Patching: the corrupt prompt → the same with the heads' output from the clean one. Nats per token; random heads: mean [range].`));
      const titles = ["heads", "trial", "what", "log-probability", "random heads", "text"];
      const table = make("table", {}, make("tr", {}, ...titles.map((title) => make("th", {}, title))));
      for (const row of [...history].reverse()) {
        const random = row.random === null ? "–" : `${signed(row.random)} [${signed(row.random_low)}, ${signed(row.random_high)}]`;
        const cells = [row.heads.join(", "), row.trial, names[row.kind], `${signed(row.before)} → ${signed(row.after)} (${signed(row.after - row.before)})`, random, `${row.text_before} → ${row.text_after}`];
        table.append(make("tr", {}, ...cells.map((text, at) => make("td", { class: at === 1 ? "lh-id" : null }, visible(text)))));
      }
      here.push(make("div", { class: "lh-wide" }, table));
    }
    this.redraw(this.parts.tried, ...here);
  }
}

// ------------------------------------------------------------------------------------------------------------------ entries

function render({ model, el }) {
  const explorer = new Explorer(model, el);
  return () => explorer.cleanup.forEach((call) => call());
}

// A page's own data in place of a kernel: {traits, bank}, where bank[trial] = {look, heads, tops, rows (base64)}.
class Bank {
  constructor({ traits, bank }) {
    this.values = { ...traits };
    this.bank = bank;
    this.calls = new Map();
    this.fill();
  }
  get(name) {
    return this.values[name];
  }
  set(name, value) {
    if (JSON.stringify(this.values[name]) === JSON.stringify(value)) return;
    this.values[name] = value;
    if (name === "heads" || name === "trial") this.fill();
    this.changed(name);
    if (name === "heads" || name === "trial") this.changed("rows_of");
  }
  changed(name) {
    for (const call of this.calls.get(`change:${name}`) ?? []) call();
  }
  on(name, call) {
    this.calls.set(name, [...(this.calls.get(name) ?? []), call]);
  }
  off(name, call) {
    this.calls.set(name, (this.calls.get(name) ?? []).filter((each) => each !== call));
  }
  save_changes() {}
  send() {}
  fill() {
    const one = this.bank[this.values.trial];
    this.values.look = one?.look ?? null;
    const wanted = this.values.heads.filter((name) => one?.heads.includes(name));
    const missing = this.values.heads.filter((name) => !wanted.includes(name)).join(", ");
    const note = missing && one ? `This page does not hold what ${missing} read, but that of ${one.heads.join(", ")}: for others, open the explorer in a notebook.` : "";
    if (!wanted.length) {
      this.values.rows_of = { trial: this.values.trial, heads: [], tops: [], note };
      return;
    }
    one.bytes ??= Uint8Array.from(atob(one.rows), (each) => each.charCodeAt(0));
    const size = one.bytes.length / one.heads.length;
    const found = new Uint8Array(size * wanted.length);
    const places = wanted.map((name) => one.heads.indexOf(name));
    places.forEach((place, at) => found.set(one.bytes.subarray(place * size, (place + 1) * size), at * size));
    this.values.rows = new DataView(found.buffer);
    this.values.rows_of = { trial: this.values.trial, heads: wanted, tops: places.map((place) => one.tops[place]), note };
  }
}

function offline(el, payload) {
  return render({ model: new Bank(payload), el });
}

export default { render };
