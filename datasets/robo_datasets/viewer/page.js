// The page of `robo-rl data view`: a list of episodes, and one episode with its pictures, plots and notes.
// Every text of a dataset is foreign: it becomes text nodes, never HTML.
"use strict";

const TOKEN = document.querySelector("meta[name=robo-token]").content;
const ROWS = 200; // of the list at a time
const COLUMNS = 12; // of a signal in one plot
const COLORS = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c7", "--c6", "--c5"];
const ACTORS = ["guard", "unknown", "human", "script", "dataset", "policy"]; // whom a pixel shows that has several
const MARKED = { human: 0.16, guard: 0.2 }; // opacity behind the plots

const root = document.getElementById("view");
const transport = document.getElementById("transport");
let dataset = null; // the answer of /api/dataset
let player = null; // the episode on the page

// --- the page's own words

function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function number(value) {
  if (typeof value === "string") return value === "Infinity" ? "∞" : value === "-Infinity" ? "−∞" : value;
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "missing" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const text = value === 0 ? "0" : size >= 1e6 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return text.replace("-", "−");
}

const count = (value, noun) => `${value.toLocaleString("en")} ${noun}${value === 1 ? "" : "s"}`;
const share = (part, whole) => `${((100 * part) / whole).toFixed(part && part / whole < 0.01 ? 1 : 0)} %`;
const outcome = (success) => (success === null ? "not judged" : success ? "success" : "failure");
const size = (bytes) => (bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter((pair) => pair).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function failure(title, error) {
  return h("section", { class: "card error", role: "alert" }, h("h2", {}, title), h("pre", {}, String(error.message ?? error)));
}

async function ask(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Was `robo-rl data view` ended?");
  }
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({ error: `${answer.status} ${answer.statusText}` }));
  throw new Error(error);
}

// --- the list of episodes

const COLUMN = {
  position: { title: "#", of: (e) => e.position },
  episode_return: { title: "return", figure: true, of: (e) => Number(e.episode_return), show: (e) => number(e.episode_return) },
  steps: { title: "steps", figure: true, of: (e) => e.steps, show: (e) => e.steps.toLocaleString("en") },
  success: { title: "success", of: (e) => outcome(e.success) },
  stop_reason: { title: "ended by", of: (e) => e.stop_reason },
  source: { title: "actor", of: (e) => e.source },
  seed: { title: "seed", figure: true, of: (e) => e.seed, show: (e) => e.seed ?? "–" },
  notes: { title: "notes", figure: true, of: (e) => dataset.notes[e.identity] ?? 0, show: (e) => dataset.notes[e.identity] ?? "" },
  instruction: { title: "instruction", wide: true, of: (e) => e.instruction ?? "" },
};
const list = { sort: "position", descending: false, text: "", success: "", stop_reason: "", source: "", rows: ROWS };

function chosen() {
  const text = list.text.toLowerCase();
  const has = (e) => [e.identity, e.source, e.stop_reason, e.instruction ?? "", `seed ${e.seed}`].some((part) => part.toLowerCase().includes(text));
  const fits = (e) => ["success", "stop_reason", "source"].every((name) => !list[name] || COLUMN[name].of(e) === list[name]);
  const key = COLUMN[list.sort].of;
  const order = (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === null || y === null) return (x === null) - (y === null); // unknown last, whichever way
    const way = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
    return (list.descending ? -way : way) || a.position - b.position;
  };
  return dataset.episodes.filter((e) => fits(e) && (!text || has(e))).sort(order);
}

function showList() {
  document.title = `${dataset.environment} · robo-rl`;
  const episodes = dataset.episodes;
  const judged = episodes.filter((e) => e.success !== null);
  const sum = (part) => episodes.reduce((total, e) => total + part(e), 0);
  const returns = episodes.map((e) => Number(e.episode_return)).filter(Number.isFinite);
  const labels = Object.entries(dataset.label_sets).map(([name, n]) => (typeof n === "number" ? `${name} (${n} of ${episodes.length})` : `${name}: ${n}`));
  root.replaceChildren(
    h("header", { class: "card headline" },
      h("p", { class: "eyebrow" }, `Recorded dataset · ${dataset.path}`),
      h("h1", { class: "plain-case" }, dataset.environment),
      facts([
        ["Episodes", episodes.length.toLocaleString("en")],
        ["Steps", sum((e) => e.steps).toLocaleString("en")],
        judged.length ? ["Success", `${judged.filter((e) => e.success).length} of ${judged.length}`] : ["Success", "not judged"],
        returns.length ? ["Mean return", number(returns.reduce((a, b) => a + b, 0) / returns.length)] : null,
        ["Size", size(sum((e) => e.bytes))],
        ["Label sets", labels.join(", ") || "none"],
        ["Spec", dataset.fingerprint],
      ]),
      dataset.success_rule ? h("p", { class: "note rule" }, `Success: ${dataset.success_rule}.`) : null,
      h("details", {}, h("summary", {}, "How it was made"), h("pre", {}, JSON.stringify(dataset.card, null, 2)))),
    episodes.length ? h("section", { class: "card" }, filters(), h("div", { id: "rows" })) : h("section", { class: "card" },
      h("h2", {}, "No episodes yet"), h("p", { class: "note" }, `robo-rl record ${dataset.environment.replace(/-v\d+$/, "$&")} --append --out ${dataset.path} adds some; then load this page again.`)));
  if (episodes.length) showRows();
}

function filters() {
  const select = (name, title) => {
    const values = [...new Set(dataset.episodes.map(COLUMN[name].of))].sort();
    return h("label", {}, title, h("select", { onchange: (event) => narrow(name, event.target.value) },
      h("option", { value: "" }, "all"), values.map((value) => h("option", { value, selected: list[name] === value }, value))));
  };
  const sorts = Object.entries(COLUMN).flatMap(([name, { title }]) => [[name, false, `${title} ↑`], [name, true, `${title} ↓`]]);
  return h("div", { class: "filters" },
    h("label", {}, "Search", h("input", { type: "search", value: list.text, placeholder: "actor, end, instruction, “seed 3”, identity", oninput: (event) => narrow("text", event.target.value) })),
    select("success", "Success"), select("stop_reason", "Ended by"), select("source", "Actor"),
    h("label", { class: "order" }, "Order", h("select", { id: "order", onchange: (event) => { const [sort, way] = event.target.value.split(" "); Object.assign(list, { sort, descending: way === "down" }); showRows(); } },
      sorts.map(([name, descending, title]) => h("option", { value: `${name} ${descending ? "down" : "up"}`, selected: list.sort === name && list.descending === descending }, title)))));
}

function narrow(name, value) {
  Object.assign(list, { [name]: value, rows: ROWS });
  showRows();
}

function sortBy(name) {
  Object.assign(list, { descending: list.sort === name && !list.descending, sort: name });
  document.getElementById("order").value = `${name} ${list.descending ? "down" : "up"}`;
  showRows();
  document.querySelector("th[aria-sort] button").focus();
}

function showRows() {
  const found = chosen();
  const heads = Object.entries(COLUMN).map(([name, { title, figure }]) => h("th",
    { scope: "col", class: figure ? "figure" : null, "aria-sort": list.sort === name ? (list.descending ? "descending" : "ascending") : null },
    h("button", { onclick: () => sortBy(name) }, title + (list.sort === name ? (list.descending ? " ↓" : " ↑") : ""))));
  const rows = found.slice(0, list.rows).map((e) => h("tr", { onclick: (event) => { if (!event.target.closest("a")) location.hash = e.identity; } },
    Object.entries(COLUMN).map(([name, { title, figure, wide, of, show }]) => h("td",
      { "data-label": title, title: wide ? of(e) : null, class: [figure ? "figure" : "", wide ? "wide" : "", name === "success" && e.success !== null ? (e.success ? "good" : "bad") : ""].join(" ") },
      name === "position" ? h("a", { href: `#${e.identity}` }, String(e.position)) : String((show ?? of)(e))))));
  const rest = found.length - rows.length;
  document.getElementById("rows").replaceChildren(
    h("p", { class: "note", role: "status" }, found.length === dataset.episodes.length ? count(found.length, "episode") : `${found.length} of ${count(dataset.episodes.length, "episode")}`),
    h("div", { class: "scroll" }, h("table", { class: "episodes" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows))),
    ...(rest > 0 ? [h("button", { class: "more", onclick: () => { list.rows += 5 * ROWS; showRows(); } }, `Show more (${rest.toLocaleString("en")})`)] : []));
}

// --- one episode

async function showEpisode(identity, step) {
  const order = chosen();
  const place = order.findIndex((e) => e.identity === identity);
  root.setAttribute("aria-busy", "true");
  root.replaceChildren(crumbs(order, place), h("p", { class: "wait" }, "Reading the episode …"));
  const leaving = new AbortController();
  player = { stop: () => leaving.abort() };
  const own = player;
  let episode;
  try {
    episode = await (await ask(`/api/episodes/${identity}`, { signal: leaving.signal })).json();
  } catch (error) {
    if (error.name === "AbortError" || player !== own) return;
    root.replaceChildren(crumbs(order, place), failure("This episode cannot be shown", error));
    return;
  } finally {
    root.setAttribute("aria-busy", "false");
  }
  if (player !== own) return;
  const known = dataset.episodes.find((e) => e.identity === identity);
  const position = known ? known.position : "?";
  document.title = `Episode ${position} · ${dataset.environment}`;
  const head = headline(episode, position);
  if (episode.error) {
    root.replaceChildren(crumbs(order, place), head, failure("This episode is damaged", episode.error), notes(episode));
    return;
  }
  player = new Player(episode, leaving);
  root.replaceChildren(crumbs(order, place), head, h("div", { class: "episode" },
    h("aside", {}, player.cameraCard(), ending(episode), acting(episode, player), notes(episode), origin(episode)),
    h("div", { class: "panels" }, player.panels())),
    h("p", { class: "note keys" }, h("kbd", {}, "space"), " play or pause   ", h("kbd", {}, "←"), " ", h("kbd", {}, "→"), " one step   ", h("kbd", {}, "shift"), " with them: ten   ",
      h("kbd", {}, "home"), " ", h("kbd", {}, "end"), "   ", h("kbd", {}, "["), " ", h("kbd", {}, "]"), " other episode   ", h("kbd", {}, "esc"), " list"));
  player.begin(step);
}

function crumbs(order, place) {
  const other = (way, title, key) => {
    const target = place < 0 ? undefined : order[place + way];
    return h("button", { disabled: !target, title: `key ${key}`, "data-key": key, onclick: () => { location.hash = target.identity; } }, title);
  };
  return h("nav", { class: "crumbs", "aria-label": "Episodes" }, h("a", { href: "#" }, "← All episodes"), h("span", { class: "spring" }),
    place < 0 ? null : h("span", { class: "note listed" }, `${place + 1} of ${order.length} listed`), other(-1, "‹ Previous", "["), other(1, "Next ›", "]"));
}

function headline({ entry, cameras }, position) {
  const good = { true: "good", false: "bad", null: "" }[entry.success];
  const ends = [entry.terminated ? "terminated" : null, entry.truncated ? "truncated" : null].filter((end) => end);
  return h("header", { class: `card headline ${good}` },
    h("p", { class: "eyebrow" }, `Episode ${position} · ${dataset.environment}`),
    h("h1", {}, entry.instruction || `Episode ${position}`),
    h("p", { class: "tags" }, h("span", { class: `tag ${entry.success === null ? "quiet" : outcome(entry.success)}` }, outcome(entry.success)),
      ends.map((end) => h("span", { class: "tag quiet" }, end)), h("span", { class: "tag quiet" }, `ended by: ${entry.stop_reason}`)),
    facts([["Return", number(entry.episode_return)], ["Steps", entry.steps.toLocaleString("en")], ["Actor", entry.source], ["Seed", entry.seed === null ? "–" : String(entry.seed)],
      cameras ? ["Cameras", cameras.length ? cameras.map((c) => `${c.name.replace("camera_", "")} ${c.width}×${c.height}`).join(", ") : "none"] : null]));
}

function ending({ entry }) {
  const words = entry.terminated ? ["Terminated: the task itself ended, nothing follows."] : [];
  if (entry.truncated) words.push(`Truncated: the episode was cut${entry.terminated ? " as well" : "; its last state would have had a future"}.`);
  if (!words.length) words.push("Neither terminated nor truncated: the recording stops in the middle.");
  return h("section", { class: "card" }, h("h2", {}, "End"), words.map((text) => h("p", { class: "meaning" }, text)), h("p", { class: "meaning" }, `Reason given: ${entry.stop_reason}.`));
}

function acting({ actors, interventions, entry }, player) {
  const lines = Object.entries(actors).map(([name, steps]) => h("p", { class: "meaning" }, h("i", { class: `swatch ${className(name)}` }), `${name}: ${count(steps, "step")}, ${share(steps, entry.steps)}`));
  const jump = interventions.slice(0, 60).map(([start, stop]) => h("button", { onclick: () => player.go(start) }, stop - start === 1 ? `step ${start}` : `steps ${start}–${stop - 1}`));
  return h("section", { class: "card" }, h("h2", {}, "Who acted"), lines.length ? lines : h("p", { class: "meaning" }, "Nobody: the episode has no step."),
    h("p", { class: "meaning" }, interventions.length ? `A person intervened ${interventions.length === 1 ? "once" : `${interventions.length} times`}:` : "No person intervened."), h("div", { class: "stretches" }, jump),
    interventions.length > 60 ? h("p", { class: "meaning" }, `The first 60 of ${interventions.length}.`) : null);
}

function origin({ entry, metadata, action, labels }) {
  const hashes = labels.filter((set) => set.model).map((set) => `${set.name}: model ${set.model}, weights ${set.weights_hash}, prompt ${set.prompt_hash}`);
  const period = action.control_period === null ? "" : ` every ${number(action.control_period)} s`;
  return h("section", { class: "card" }, h("h2", {}, "Metadata"), h("p", { class: "meaning" }, `Action: ${action.mode}${period}${action.frame ? `, frame ${action.frame}` : ""}.`),
    h("p", { class: "meaning" }, `Identity: ${entry.identity}, ${size(entry.bytes)}.`), hashes.map((text) => h("p", { class: "meaning" }, text)), h("details", {}, h("summary", {}, "As recorded"), h("pre", {}, JSON.stringify(metadata, null, 2))));
}

function notes({ entry, notes: texts }) {
  const shown = h("ul", { class: "notes" });
  const fill = (all) => shown.replaceChildren(...all.map((text) => h("li", {}, text)));
  fill(texts);
  const status = h("p", { class: "note", role: "status" });
  const area = h("textarea", { name: "note", "aria-label": "New note", placeholder: "What is worth remembering of this episode?", maxlength: 4000, onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit(); } });
  const button = h("button", { class: "primary", type: "submit" }, "Add note");
  const add = async (event) => {
    event.preventDefault();
    if (!area.value.trim()) return;
    button.disabled = true;
    try {
      const body = JSON.stringify({ text: area.value });
      const answer = await ask(`/api/episodes/${entry.identity}/notes`, { method: "POST", body, headers: { "X-Robo-Token": TOKEN, "Content-Type": "application/json" } });
      const all = (await answer.json()).notes;
      dataset.notes[entry.identity] = all.length;
      fill(all);
      area.value = "";
      status.textContent = "Kept in the catalogue.";
    } catch (error) {
      status.textContent = `Not kept. ${error.message}`;
    }
    button.disabled = false;
  };
  const form = h("form", { class: "note-form", onsubmit: add }, area, button);
  return h("section", { class: "card" }, h("h2", {}, "Notes"), shown, dataset.can_note ? form : h("p", { class: "note" }, "Notes cannot be added: this dataset may only be read."), status);
}

const className = (actor) => (ACTORS.includes(actor) ? actor : "unknown");

// --- time: the slider, the cameras and the plots follow one step

class Player {
  constructor(episode, leaving) {
    this.episode = episode;
    this.leaving = leaving;
    this.steps = episode.entry.steps;
    this.step = 0;
    this.window = [0, this.steps]; // of the plots
    this.span = 0; // steps in the window, 0 for all
    this.period = episode.action.control_period || 0.1;
    this.playing = null;
    this.arrays = new Map();
    this.cameras = episode.cameras.map((camera) => new Camera(camera, episode.entry.identity, this));
    this.plots = [];
    this.actors = null; // a name for each step
    this.seconds = null;
  }

  async begin(step) {
    this.buildTransport();
    this.go(step);
    this.resized = new ResizeObserver(() => this.redraw());
    this.resized.observe(root);
    this.seen = new IntersectionObserver((entries) => entries.forEach((entry) => entry.target.plot.appear(entry.isIntersecting)), { rootMargin: "200px" });
    this.plots.forEach((plot) => this.seen.observe(plot.node));
    try {
      const [[codes], [seconds]] = await Promise.all([this.load("sources/source"), this.load("timestamps/seconds")]);
      this.actors = Array.from(codes, (code) => this.episode.source_names[code] ?? "unknown");
      this.seconds = seconds;
      this.redraw();
      this.go(this.step);
    } catch (error) {
      if (error.name !== "AbortError") this.where.textContent = error.message;
    }
  }

  load(key) { // once for each signal: a column each
    if (!this.arrays.has(key)) {
      const { rows, width } = this.episode.signals.find((signal) => signal.key === key);
      const columns = (buffer) => Array.from({ length: width }, (_, i) => new Float32Array(buffer, 4 * rows * i, rows));
      const address = `/api/episodes/${this.episode.entry.identity}/signals?key=${encodeURIComponent(key)}`;
      this.arrays.set(key, ask(address, { signal: this.leaving.signal }).then((answer) => answer.arrayBuffer()).then(columns));
    }
    return this.arrays.get(key);
  }

  stop() {
    this.pause();
    clearTimeout(this.remembering);
    this.leaving.abort();
    this.seen?.disconnect();
    this.resized?.disconnect();
    transport.hidden = true;
    transport.replaceChildren();
  }

  go(step) {
    this.step = Math.max(0, Math.min(this.steps, Math.round(step) || 0));
    const turned = this.turn();
    this.slider.value = this.step;
    const time = this.seconds ? `, ${this.seconds[this.step].toFixed(2)} s` : "";
    const actor = this.actors?.[this.step];
    this.slider.setAttribute("aria-valuetext", `step ${this.step} of ${this.steps}${time}`);
    this.where.replaceChildren(`${this.step.toLocaleString("en")} / ${this.steps.toLocaleString("en")} `, h("small", {}, `${time.slice(2)}${actor ? ` · ${actor}` : this.step === this.steps ? " · end" : ""}`));
    this.cameras.forEach((camera) => camera.show(this.step));
    this.plots.forEach((plot) => (turned ? plot.draw() : plot.point()));
    clearTimeout(this.remembering); // browsers allow few changes of the address a second
    this.remembering = setTimeout(() => history.replaceState(null, "", `#${this.episode.entry.identity}@${this.step}`), 300);
  }

  turn() { // moves the plots' window once the step has left it; returns whether it moved
    const before = this.window.join();
    if (!this.span || this.span >= this.steps) this.window = [0, this.steps];
    else if (this.step < this.window[0] || this.step > this.window[1] || this.window[1] - this.window[0] !== this.span) {
      const start = Math.max(0, Math.min(this.steps - this.span, this.step - Math.floor(this.span / 4)));
      this.window = [start, start + this.span];
    }
    return this.window.join() !== before;
  }

  play() {
    if (this.playing) return this.pause();
    if (this.step >= this.steps) this.go(0);
    let last = performance.now();
    let owed = 0;
    const tick = (now) => {
      owed += ((now - last) / 1000 / this.period) * Number(this.speed.value);
      last = now;
      if (owed >= 1) {
        this.go(this.step + Math.floor(owed));
        owed %= 1;
      }
      if (this.step >= this.steps) this.pause();
      else if (this.playing) this.playing = requestAnimationFrame(tick);
    };
    this.playing = requestAnimationFrame(tick);
    this.button.textContent = "❚❚ Pause";
  }

  pause() {
    cancelAnimationFrame(this.playing);
    this.playing = null;
    if (this.button) this.button.textContent = "▶ Play";
  }

  buildTransport() {
    const option = (value, text, selected) => h("option", { value, selected }, text);
    this.button = h("button", { class: "primary play", onclick: () => this.play() }, "▶ Play");
    this.slider = h("input", { type: "range", min: 0, max: this.steps, step: 1, value: 0, "aria-label": "Step", oninput: (event) => { this.pause(); this.go(Number(event.target.value)); } });
    this.where = h("span", { class: "where" });
    this.speed = h("select", { "aria-label": "Speed" }, [0.1, 0.25, 0.5, 1, 2, 4, 16, 64].map((speed) => option(speed, `${speed}×`, speed === 1)));
    const spans = [10000, 1000, 200].filter((span) => span < this.steps);
    const widen = (event) => { this.span = Number(event.target.value); this.turn(); this.redraw(); };
    const zoom = h("label", {}, "Plots show ", h("select", { onchange: widen }, option(0, "all steps", true), spans.map((span) => option(span, count(span, "step")))));
    const legend = Object.keys(this.episode.actors).map((name) => h("span", {}, h("i", { class: `swatch ${className(name)}` }), name));
    this.strip = h("canvas", { role: "img", "aria-label": "Who acted, over the steps" });
    transport.replaceChildren(h("div", { class: "row" }, this.button, this.where, this.speed, spans.length ? zoom : null, h("span", { class: "actors" }, legend), h("div", { class: "track" }, this.slider, this.strip)));
    transport.hidden = false;
  }

  redraw() {
    this.plots.forEach((plot) => plot.draw());
    if (!this.actors) return;
    const { context, width, height } = sized(this.strip);
    paintActors(context, this.actors, [0, this.steps], { left: 0, width, height, alpha: () => 1 });
  }

  cameraCard() {
    return this.cameras.length ? h("section", { class: "card" }, h("div", { class: "cameras" }, this.cameras.map((camera) => camera.node))) : null;
  }

  panels() {
    const signals = this.episode.signals;
    const of = (...groups) => signals.filter((signal) => groups.includes(signal.group));
    const whole = (signal, title = signal.name) => new Plot(this, title, signal);
    const [executed, proposed] = ["executed", "proposed"].map((name) => signals.find((signal) => signal.key === `actions/${name}`));
    const actions = executed.columns.slice(0, 64).map((name, column) => new ActionPlot(this, name, column, executed, proposed));
    const rewards = of("rewards").map((s) => whole(s, "recorded reward"));
    const terms = [...of("reward_terms").map((s) => whole(s, `term ${s.name}`)), ...of("costs").map((s) => whole(s, s.name === "cost" ? "cost" : `cost ${s.name}`))];
    const labels = this.episode.labels.flatMap((set) => (set.missing === null || set.error ? [absent(set)] : [whole(signals.find((s) => s.key === `labels/${set.name}`), `labels ${set.name}`)]));
    const confidence = of("confidence").map((s) => whole(s, `confidence of ${s.name}`));
    const observations = of("observations").map((s) => (s.drawn ? whole(s) : tooWide(s)));
    const sections = [["Rewards and label sets", [...rewards, ...labels, ...confidence, ...terms]], ["Actions, executed and proposed", actions], ["Observations", observations]];
    this.plots = sections.flatMap(([, plots]) => plots).filter((plot) => plot instanceof Plot);
    return sections.filter(([, plots]) => plots.length).map(([title, plots]) => h("section", { class: "card" }, h("h2", {}, title), h("div", { class: "plots" }, plots.map((plot) => plot.node))));
  }
}

class Camera {
  constructor({ name, width, height }, identity, player) {
    this.address = `/api/episodes/${identity}/cameras/${name}`;
    this.name = name;
    this.player = player;
    this.image = h("img", { width, height, alt: name });
    this.problem = h("p", { class: "camera-error" });
    this.node = h("figure", {}, this.image, h("figcaption", {}, name.replace("camera_", "")), this.problem);
  }

  async show(step) { // one picture under way at a time; then the newest that was wanted
    this.wanted = step;
    if (this.busy) return;
    this.busy = true;
    while (this.shown !== this.wanted && !this.player.leaving.signal.aborted) {
      const next = this.wanted;
      const image = h("img", { src: `${this.address}/${next}`, alt: `${this.name} at step ${next}`, width: this.image.width, height: this.image.height, "data-step": next });
      try {
        await image.decode();
        this.image.replaceWith(image);
        this.image = image;
        this.problem.textContent = "";
      } catch {
        await ask(`${this.address}/${next}`).then(() => { this.problem.textContent = `Step ${next}: no picture`; }, (error) => { this.problem.textContent = error.message; });
      }
      this.shown = next;
    }
    this.busy = false;
  }
}

// --- plots

const framed = (title, detail, text) => ({ node: h("figure", { class: "plot" }, h("header", {}, h("h3", {}, title), h("span", { class: "detail" }, detail)), h("div", { class: "empty-plot" }, h("span", {}, text))) });
const absent = (set) => framed(`labels ${set.name}`, set.error ? "cannot be read" : "missing", set.error ?? "This set says nothing about this episode. Missing is not zero.");
const tooWide = (signal) => framed(signal.name, signal.detail, `${signal.width.toLocaleString("en")} numbers a step: too many for a plot`);

class Plot {
  constructor(player, title, signal) {
    Object.assign(this, { player, title, signal, first: 0, lines: null, visible: false });
    this.detail = h("span", { class: "detail" }, this.subtitle());
    this.missing = h("span", { class: "detail missing" });
    this.canvas = h("canvas", { role: "img", "aria-label": title });
    this.cursor = h("div", { class: "cursor", hidden: true });
    this.readout = h("div", { class: "readout" }, "…");
    const box = h("div", { class: "canvas", onpointerdown: (event) => this.drag(event), onpointermove: (event) => event.buttons && this.drag(event) }, this.canvas, this.cursor);
    this.node = h("figure", { class: "plot" }, h("header", {}, h("h3", {}, title), this.detail, this.missing, this.pager()), box, this.readout);
    this.node.plot = this;
  }

  subtitle() {
    return [this.signal.unit && this.signal.unit !== "1" ? this.signal.unit : "", this.signal.detail].filter((part) => part).join(" · ");
  }

  pager() { // for signals with more columns than colours
    const { width } = this.signal;
    if (width <= COLUMNS) return null;
    const starts = Array.from({ length: Math.ceil(width / COLUMNS) }, (_, i) => i * COLUMNS);
    return h("select", { "aria-label": `Columns of ${this.title}`, onchange: (event) => { this.first = Number(event.target.value); this.prepare(); } },
      starts.map((start) => h("option", { value: start }, `${start}–${Math.min(width, start + COLUMNS) - 1} of ${width}`)));
  }

  async fetchLines() {
    const columns = await this.player.load(this.signal.key);
    const names = this.signal.columns;
    return columns.slice(this.first, this.first + COLUMNS).map((data, i) => ({ name: columns.length > 1 ? names[this.first + i] : "", data, color: COLORS[i % COLORS.length], dashed: i >= COLORS.length }));
  }

  async prepare() {
    try {
      this.lines = await this.fetchLines();
    } catch (error) {
      if (error.name !== "AbortError") this.readout.textContent = error.message;
      return;
    }
    let [low, high, gaps] = [Infinity, -Infinity, 0];
    const rows = this.lines.length ? this.lines[0].data.length : 0;
    for (let i = 0; i < rows; i += 1) {
      let gap = false;
      for (const { data } of this.lines) {
        const value = data[i];
        if (!Number.isFinite(value)) gap = true;
        else { if (value < low) low = value; if (value > high) high = value; }
      }
      gaps += gap;
    }
    this.range = low > high ? [0, 1] : low === high ? [low - Math.max(1e-6, Math.abs(low) * 0.1, low ? 0 : 1), high + Math.max(1e-6, Math.abs(high) * 0.1, low ? 0 : 1)] : [low - 0.05 * (high - low), high + 0.05 * (high - low)];
    this.missing.textContent = gaps ? `${gaps.toLocaleString("en")} of ${rows.toLocaleString("en")} missing` : "";
    this.canvas.setAttribute("aria-label", `${this.title} over ${this.player.steps} steps, ${low > high ? "all missing" : `from ${number(low)} to ${number(high)}`}${gaps ? `, ${gaps} missing` : ""}`);
    this.values = this.lines.map(() => h("b", {}));
    this.readout.replaceChildren(...this.lines.map((line, i) => {
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = line.dashed ? `repeating-linear-gradient(90deg, var(${line.color}) 0 4px, transparent 4px 6px)` : `var(${line.color})`;
      return h("span", {}, swatch, line.name ? `${line.name} ` : "", this.values[i]);
    }));
    this.draw();
  }

  appear(visible) {
    this.visible = visible;
    if (!visible) return;
    if (this.lines) this.draw();
    else if (!this.asked) { this.asked = true; this.prepare(); }
  }

  place(step) {
    const [start, stop] = this.player.window;
    return this.area.left + ((step - start) / Math.max(1, stop - start)) * this.area.width;
  }

  drag(event) {
    if (!this.area) return;
    const [start, stop] = this.player.window;
    const x = event.clientX - this.canvas.getBoundingClientRect().left - this.area.left;
    this.player.pause();
    this.player.go(Math.max(start, Math.min(stop, start + (x / this.area.width) * (stop - start))));
  }

  point() { // the cursor and the numbers under it
    if (!this.visible || !this.lines || !this.area) return;
    const { step } = this.player;
    this.cursor.hidden = false;
    this.cursor.style.transform = `translateX(${this.place(step)}px)`;
    this.lines.forEach(({ data }, i) => {
      const value = data[step];
      this.values[i].textContent = value === undefined ? "–" : this.say(value);
      this.values[i].className = value !== undefined && Number.isNaN(value) ? "missing" : "";
    });
  }

  say(value) {
    return number(value);
  }

  draw() {
    if (!this.visible || !this.lines) return;
    const { context, width, height } = sized(this.canvas);
    context.font = "11px system-ui, sans-serif";
    const widest = Math.max(0, ...ticks(...this.range).map((tick) => context.measureText(number(tick)).width));
    const left = Math.max(46, Math.ceil(widest) + 8); // so that no label is cut at the edge
    const area = { left, top: 4, width: width - left - 8, height: height - 20 };
    this.area = area;
    const { player } = this;
    if (player.actors) paintActors(context, player.actors, player.window, { ...area, height: area.top + area.height, alpha: (name) => MARKED[name] ?? 0 });
    this.axes(context, area);
    paintMissing(context, this.lines, player.window, area);
    const [low, high] = this.range;
    const y = (value) => area.top + (1 - (value - low) / (high - low)) * area.height;
    for (const line of [...this.lines].reverse()) paintLine(context, line, player.window, area, y);
    this.point();
  }

  axes(context, area) {
    const [low, high] = this.range;
    const [start, stop] = this.player.window;
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = color("--soft");
    context.strokeStyle = color("--rule");
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const tick of ticks(low, high)) {
      const y = Math.round(area.top + (1 - (tick - low) / (high - low)) * area.height) + 0.5;
      context.beginPath();
      context.moveTo(area.left, y);
      context.lineTo(area.left + area.width, y);
      context.stroke();
      context.fillText(number(tick), area.left - 5, y);
    }
    context.textBaseline = "bottom";
    context.textAlign = "left";
    context.fillText(start.toLocaleString("en"), area.left, area.top + area.height + 16);
    context.textAlign = "right";
    context.fillText(stop.toLocaleString("en"), area.left + area.width, area.top + area.height + 16);
  }
}

class ActionPlot extends Plot {
  constructor(player, title, column, executed, proposed) {
    super(player, title, { ...executed, width: 1 });
    Object.assign(this, { column, proposed, limits: "" });
    const { action } = player.episode;
    if (action.mode !== "discrete" && action.low[column] !== undefined) {
      const unit = action.units[column] === "1" ? "" : ` ${action.units[column]}`;
      this.limits = `−1 … 1 is ${number(action.low[column])} … ${number(action.high[column])}${unit}`;
    }
  }

  async fetchLines() {
    const [executed, proposed] = await Promise.all([this.player.load("actions/executed"), this.player.load("actions/proposed")]);
    const [done, wanted] = [executed[this.column], proposed[this.column] ?? new Float32Array(0)];
    const other = done.reduce((total, value, i) => total + !Object.is(value, wanted[i]), 0);
    this.detail.textContent = [this.limits, other ? `differs at ${count(other, "step")}` : "all as proposed"].filter((part) => part).join(" · ");
    return [{ name: "executed", data: done, color: "--c0" }, { name: "proposed", data: wanted, color: "--c1", dashed: true }];
  }

  say(value) {
    const { action } = this.player.episode;
    return action.mode === "discrete" ? `${value} ${action.names[value] ?? ""}` : number(value);
  }
}

function ticks(low, high) {
  const rough = (high - low) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high && found.length < 6; i += 1) found.push(Number((i * step).toPrecision(12)));
  return found;
}

function sized(canvas) { // as many pixels as the screen has
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return { context, width, height };
}

// Calls visit(x, from, to) for each pixel with the rows from..to-1 that lie in it; with few rows, for each row.
function eachPixel(rows, [start, stop], area, visit) {
  const last = Math.min(rows - 1, stop);
  const scale = area.width / Math.max(1, stop - start);
  if (last - start <= 2 * area.width) {
    for (let i = start; i <= last; i += 1) visit(area.left + (i - start) * scale, i, i + 1);
    return;
  }
  for (let x = 0; x < area.width; x += 1) {
    const from = start + Math.floor(x / scale);
    const to = Math.min(last + 1, start + Math.max(1, Math.floor((x + 1) / scale)));
    if (from < to) visit(area.left + x, from, to);
  }
}

// Draws the least and the greatest value of each pixel, so that no peak is lost; a gap where values are missing.
function paintLine(context, { data, color: name, dashed }, window, area, y) {
  context.strokeStyle = context.fillStyle = color(name);
  context.lineWidth = 1.6;
  context.lineJoin = "round";
  context.setLineDash(dashed ? [5, 3] : []);
  context.beginPath();
  let before = null; // the point before, while it stands alone
  let open = false;
  const dots = [];
  eachPixel(data.length, window, area, (x, from, to) => {
    let [low, high] = [Infinity, -Infinity];
    for (let i = from; i < to; i += 1) {
      const value = data[i];
      if (Number.isFinite(value)) { if (value < low) low = value; if (value > high) high = value; }
    }
    if (low > high) {
      if (before) dots.push(before);
      [before, open] = [null, false];
      return;
    }
    if (open) context.lineTo(x, y(high));
    else context.moveTo(x, y(high));
    if (low < high) context.lineTo(x, y(low));
    before = open || low < high ? null : [x, y(high)];
    open = true;
  });
  if (before) dots.push(before);
  context.stroke();
  context.setLineDash([]);
  for (const [x, top] of dots) context.fillRect(x - 1.5, top - 1.5, 3, 3);
}

function paintMissing(context, lines, window, area) {
  if (!lines.length) return;
  context.save();
  context.beginPath();
  const half = Math.max(1.5, area.width / Math.max(1, window[1] - window[0]) / 2);
  let any = false;
  eachPixel(lines[0].data.length, window, area, (x, from, to) => {
    for (let i = from; i < to; i += 1) {
      if (lines.some(({ data }) => !Number.isFinite(data[i]) && i < data.length)) {
        context.rect(x - half, area.top, 2 * half, area.height);
        any = true;
        return;
      }
    }
  });
  if (any) {
    context.clip();
    context.fillStyle = color("--warn");
    context.fillRect(area.left, area.top, area.width, area.height);
    context.strokeStyle = color("--warn-rule");
    context.lineWidth = 1;
    context.beginPath();
    for (let x = area.left - area.height; x < area.left + area.width; x += 6) {
      context.moveTo(x, area.top + area.height);
      context.lineTo(x + area.height, area.top);
    }
    context.stroke();
  }
  context.restore();
}

// Bands of who acted: a step reaches from itself to the next; of several in a pixel the first of ACTORS is shown.
function paintActors(context, actors, [start, stop], { left, width, height, alpha }) {
  const scale = width / Math.max(1, stop - start);
  const last = Math.min(actors.length, stop);
  const band = (name, from, to) => {
    context.globalAlpha = alpha(name);
    context.fillStyle = color(`--${name}`);
    if (context.globalAlpha) context.fillRect(left + from, 0, Math.max(1.5, to - from), height);
  };
  const stride = Math.max(1, 1 / scale); // steps of a pixel
  let [name, since] = [null, 0];
  for (let at = start; at < last; at += stride) {
    let here = actors[Math.floor(at)];
    for (let i = Math.floor(at) + 1; i < Math.min(last, Math.floor(at + stride)); i += 1) if (ACTORS.indexOf(actors[i]) < ACTORS.indexOf(here)) here = actors[i];
    if (here === name) continue;
    if (name) band(name, since, (at - start) * scale);
    [name, since] = [here, (at - start) * scale];
  }
  if (name) band(name, since, (last - start) * scale);
  context.globalAlpha = 1;
}

// --- keys, addresses, start

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("textarea, select, input:not([type=range])");
  if (typing || !(player instanceof Player || event.key === "Escape" || event.key === "[" || event.key === "]")) return;
  const stride = event.shiftKey ? 10 : 1;
  const button = document.querySelector(`.crumbs [data-key="${CSS.escape(event.key)}"]`);
  const actions = {
    ArrowLeft: () => { player.pause(); player.go(player.step - stride); },
    ArrowRight: () => { player.pause(); player.go(player.step + stride); },
    Home: () => player.go(0),
    End: () => player.go(player.steps),
    " ": () => player.play(),
    "[": () => button?.click(),
    "]": () => button?.click(),
    Escape: () => { location.hash = ""; },
  };
  if (!Object.hasOwn(actions, event.key) || (event.key === " " && event.target.closest("button, a, summary"))) return;
  if (location.hash.length <= 1) return; // the list keeps its own keys
  event.preventDefault();
  actions[event.key]();
});

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => player instanceof Player && player.redraw());

async function route() {
  player?.stop();
  player = null;
  transport.hidden = true;
  root.setAttribute("aria-busy", "true");
  try {
    if (!dataset) {
      dataset = await (await ask("/api/dataset")).json();
      dataset.episodes.forEach((entry, i) => { entry.position = i + 1; });
    }
  } catch (error) {
    root.replaceChildren(failure("This dataset cannot be shown", error));
    return;
  } finally {
    root.setAttribute("aria-busy", "false");
  }
  const [identity, step] = location.hash.slice(1).split("@");
  window.scrollTo(0, 0);
  if (identity) await showEpisode(identity, Number(step ?? 0));
  else showList();
}

window.addEventListener("hashchange", route);
route();
