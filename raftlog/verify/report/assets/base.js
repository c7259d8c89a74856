// What every part uses. Text reaches the page as text nodes only: a history is never markup.
const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function moment(ns) {
  const size = Math.abs(ns);
  if (size < 1e4) return `${Math.round(ns)} ns`;
  if (size < 1e7) return `${(ns / 1e3).toFixed(1)} us`;
  if (size < 1e10) return `${(ns / 1e6).toFixed(1)} ms`;
  return `${(ns / 1e9).toFixed(2)} s`;
}
// Round places for the labels of an axis of time, as [instant, words]; about `count` of them.
function timeTicks(start, end, count) {
  const base = data.span[0], raw = Math.max(1, (end - start) / count), power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5].find((times) => times * power >= raw) || 10);
  const far = Math.max(Math.abs(start - base), Math.abs(end - base));
  const [size, unit] = far < 1e4 ? [1, "ns"] : far < 1e7 ? [1e3, "us"] : far < 2e9 ? [1e6, "ms"] : [1e9, "s"];
  const digits = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9)));
  const found = [];
  for (let at = Math.ceil((start - base) / step); base + at * step <= end && found.length < 400; at += 1) {
    found.push([base + at * step, `${((at * step) / size).toFixed(digits)} ${unit}`]);
  }
  return found;
}
// Instants are shown from the beginning of the history: a monotonic clock's zero means nothing.
const since = (ns) => moment(ns - data.span[0]);

// --- hover to see, click or Enter to keep, Escape to let go ---------------------------------------
const tip = document.getElementById("tip");
let kept = null;

function showTip(element, text) {
  tip.textContent = text;
  tip.hidden = false;
  const box = element.getBoundingClientRect();
  const wide = Math.min(520, window.innerWidth - 20);
  tip.style.left = `${Math.max(8, Math.min(box.left + box.width / 2, window.innerWidth - wide - 8))}px`;
  const below = box.bottom + 8 + tip.offsetHeight < window.innerHeight;
  tip.style.top = `${below ? box.bottom + 8 : Math.max(8, box.top - tip.offsetHeight - 8)}px`;
}
function letGo() {
  if (kept) kept.classList.remove("frozen");
  kept = null;
  tip.classList.remove("kept");
  tip.hidden = true;
}
function explain(element, text, focusable = true) {
  fill(element, { role: "img", "aria-label": text, tabindex: focusable ? 0 : null }, []);
  const keep = (event) => {
    event.stopPropagation();
    const again = kept === element;
    letGo();
    if (again) return;
    kept = element;
    element.classList.add("frozen");
    showTip(element, text);
    tip.classList.add("kept");
  };
  element.addEventListener("mouseenter", () => kept || showTip(element, text));
  element.addEventListener("focus", () => kept || showTip(element, text));
  element.addEventListener("mouseleave", () => kept || letGo());
  element.addEventListener("blur", () => kept || letGo());
  element.addEventListener("click", keep);
  element.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); keep(event); }
  });
  return element;
}

// One stop for Tab in every picture: arrows walk inside it, Home and End to its ends.
function walkable(picture) {
  const marks = [...picture.querySelectorAll("[role=img][tabindex]")];
  const first = Math.max(0, marks.findIndex((mark) => mark.closest(".accused-operation, .accused-row")));
  marks.forEach((mark, at) => mark.setAttribute("tabindex", at === first ? 0 : -1));
  picture.addEventListener("keydown", (event) => {
    const at = marks.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0, End: marks.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = marks[Math.max(0, Math.min(marks.length - 1, to))];
    if (kept) letGo();
    marks[at].setAttribute("tabindex", -1);
    next.setAttribute("tabindex", 0);
    next.focus();
  });
  return picture;
}
// Bring what matters into the part of a scrolled box that is seen, without moving the page.
function centre(box, mark) {
  if (!box || !mark) return;
  const inside = mark.getBoundingClientRect(), around = box.getBoundingClientRect();
  box.scrollTop += inside.top + inside.height / 2 - around.top - around.height / 2;
  box.scrollLeft += inside.left + inside.width / 2 - around.left - around.width / 2;
}

// --- sections -------------------------------------------------------------------------------------
const sections = [];
function section(id, title, about, ...children) {
  const made = h("section", { id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title` }, title), about ? h("p", { class: "note" }, about) : null, ...children);
  sections.push([id, title]);
  page.append(made);
  return made;
}
function table(columns, rows, attributes) {
  return h("div", { class: "scroll tall", tabindex: 0 }, h("table", attributes,
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows)));
}
function swatch(shape) { return s("svg", { width: 26, height: 14, "aria-hidden": "true" }, shape); }
function legend(entries) {
  return h("div", { class: "key" }, entries.map(([shape, words]) => h("span", {}, swatch(shape), words)));
}
// One style class per name, the same on the whole page; the first six differ in colour.
const styles = new Map();
function styleOf(name) {
  if (!styles.has(name)) styles.set(name, `s${Math.min(5, styles.size)}`);
  return styles.get(name);
}
["send", "poll"].forEach(styleOf);

// Commands are made here, from fields that have no other form than these: nothing that a run wrote
// can stand in what is copied into a terminal.
const FORMS = {
  place: /^(?!-)[A-Za-z0-9_.\/+=@-]{1,200}$/, word: /^[a-z0-9][a-z0-9_.-]{0,63}$/, seed: /^-?[0-9]{1,19}$/,
  mutant: /^[0-9]{1,4}[a-z]?$/, setting: /^(?!-)[A-Za-z0-9_.:-]{1,100}=[A-Za-z0-9_.:-]{1,100}$/,
};
const fits = (value, form) => typeof value === "string" && FORMS[form].test(value);
const natural = (value) => Number.isSafeInteger(value) && value > 0;

function commandList() {
  const fields = data.commands, found = [];
  const place = fits(fields.place, "place") ? fields.place : null, where = place || (fields.folder ? "RUNFOLDER" : "HISTORY");
  if (fields.kind === "sim") {
    const mutant = fields.mutant === undefined ? "" : fits(fields.mutant, "mutant") ? ` --mutant ${fields.mutant}` : null;
    const from = fields.folder ? where : fits(fields.seed, "seed") ? `--seed ${fields.seed}` : null;
    if (mutant !== null && from !== null) {
      found.push(["replay", `raftlog sim ${fields.folder ? "replay" : "run"} ${from}${mutant}`], ["debug", `raftlog sim debug ${from}${mutant}`], ["shrink", `raftlog sim shrink ${from}${mutant}`]);
    }
  } else if (fields.kind === "demo" && natural(fields.rows)) {
    found.push(["replay", `raftlog demo --rows ${fields.rows}`]);
  } else if (fields.kind === "suite" && ["workload", "nemesis", "client"].every((name) => fits(fields[name], "word")) &&
      fits(fields.seed, "seed") && natural(fields.seconds) && fields.settings.every((pair) => fits(pair, "setting"))) {
    found.push(["replay", `python -m jepsen_style_tests run --workload ${fields.workload} --nemesis ${fields.nemesis} --time-limit ${fields.seconds} ` +
      `--seed ${fields.seed} --client ${fields.client}${fields.linearizable === true ? " --linearizable" : ""}${fields.settings.map((pair) => ` --set ${pair}`).join("")}`]);
  }
  found.push(["judge again", `raftlog verify ${where}`], ["check this page", `raftlog verify --check-report report.html ${where}`]);
  return found;
}
