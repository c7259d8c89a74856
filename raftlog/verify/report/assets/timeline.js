// Per partition: when each operation ran and took effect, and who says what lies where. Log strips.
const ROW = 17, LABEL = 250;

function clientTimeline(key) {
  const bars = data.bars.filter((bar) => bar.keys.includes(key)).slice(0, 200);
  if (!bars.length) return h("p", { class: "note" }, "No operation of the window touches it.");
  const start = Math.min(...bars.map((bar) => bar.start));
  // A call that hangs through a fault must not squeeze all others into a corner: the axis ends a little
  // after the last call, and what returns later runs to the edge.
  const last = Math.max(...bars.map((bar) => Math.max(bar.start, bar.point || 0, bar.accused ? bar.end || 0 : 0)));
  const latest = Math.max(...bars.map((bar) => (bar.end === null ? bar.start : bar.end)));
  const end = Math.max(start + 1, Math.min(latest, last + (last - start) / 12));
  const width = 1160;
  const x = (ns) => LABEL + ((ns - start) / (end - start)) * (width - LABEL - 40);
  const svg = s("svg", { width, height: ROW * bars.length + 12, role: "group", "aria-label": `operations on ${key}` });
  const axis = s("svg", { width, height: 22, class: "lanes", "aria-hidden": "true" });
  for (const [ns, words] of timeTicks(start, end, 7)) {
    svg.append(s("line", { class: "rule", x1: x(ns), x2: x(ns), y1: 0, y2: ROW * bars.length + 10 }));
    axis.append(s("text", { class: "soft", x: x(ns), y: 14, "text-anchor": "middle" }, words));
  }
  for (const fault of data.faults) {
    const to = fault.end === null ? end : Math.min(end, fault.end), from = Math.max(start, fault.start);
    if (to < start || from > end) continue;
    svg.append(explain(s("rect", { class: "fault", x: x(from), y: 1, width: Math.max(1.5, x(to) - x(from)), height: ROW * bars.length + 8, "fill-opacity": 0.5, "stroke-opacity": 0.4 }), `fault: ${fault.label}`, false));
  }
  const rows = new Map();
  bars.forEach((bar, at) => {
    const top = 5 + at * ROW, from = x(bar.start), beyond = bar.end === null || bar.end > end, to = beyond ? width - 8 : x(bar.end);
    rows.set(bar.index, [x(bar.point === null ? bar.start : bar.point), top + 7]);
    const group = s("g", { class: bar.accused ? "accused-row" : null },
      s("text", { x: 4, y: top + 11, class: bar.accused ? "bad" : null }, `${bar.accused ? "! " : ""}${bar.process}: ${bar.label}`.slice(0, 38)),
      s("rect", { class: `op ${styleOf(bar.f)} ${bar.type} ${bar.accused ? "accused" : ""}`, x: from, y: top + 2, width: Math.max(3, to - from), height: ROW - 6, rx: 2 }),
      beyond ? s("text", { x: width - 22, y: top + 11, class: "soft" }, "...") : null,
      bar.point === null ? null : s("circle", { class: "point", cx: x(bar.point), cy: top + 7, r: 3.5 }));
    svg.append(explain(group, `${bar.text}\n${since(bar.start)} to ${bar.end === null ? "no return" : since(bar.end)}` +
      `${bar.point === null ? "" : `\ntakes effect at ${since(bar.point)}`}`));
  });
  const pair = data.accused.map((index) => rows.get(index)).filter(Boolean);
  if (pair.length > 1) svg.append(s("path", { class: "pair", d: pair.map(([px, py], at) => `${at ? "L" : "M"}${px} ${py}`).join(" ") }));
  return h("div", { class: "scroll tall", tabindex: 0 }, axis, walkable(svg));
}

function orderGrid(part) {
  if (!part.columns.length) return null;
  const differs = new Set(part.conflicts), twice = new Set(part.twice);
  return h("div", {}, h("h3", {}, `Who says what lies where in ${part.key}`),
    h("p", { class: "note" }, "A row is an operation, a column an offset. \u2260 and red: the values of a column disagree. x2 and a red edge: one value at two offsets.",
      part.log_start ? ` Log start ${part.log_start}.` : "", part.left_out ? ` ${part.left_out} rows left out.` : ""),
    h("div", { class: "scroll tall", tabindex: 0 }, h("table", { class: "grid" },
      h("thead", {}, h("tr", {}, h("th", {}, "operation"), part.columns.map((offset) =>
        h("th", { scope: "col" }, `${offset}${differs.has(offset) ? " \u2260" : ""}`)))),
      h("tbody", {}, part.rows.map((row) => h("tr", { class: row.accused ? "accused" : null },
        h("th", { scope: "row" }, `${row.accused ? "! " : ""}${row.index} ${row.label}`),
        part.columns.map((offset) => gridCell(row.cells[offset], differs.has(offset), twice))))))));
}

function gridCell(value, differs, twice) {
  if (value === undefined) return h("td", {});
  return h("td", { class: differs ? "differs" : twice.has(value) ? "twice" : null }, twice.has(value) ? `${value} x2` : value);
}

function partitions() {
  if (!data.partitions.length) {
    if (data.bars.length && data.classes.every((entry) => entry.name === "model")) objects();
    return;
  }
  section("partitions", "Partitions", "Bars run from call to return; a dot is the moment at which the operation took effect, as the judge placed it; bands are faults.",
    data.partitions.map((part) => h("div", {}, h("h3", {}, part.key), clientTimeline(part.key), isEvidence(part) ? orderGrid(part) : null)));
}
// A grid stands with its partition where it shows what is wrong; all others are folded at the end.
const isEvidence = (part) => part.conflicts.length > 0 || part.rows.some((row) => row.accused);
function grids() {
  const parts = data.partitions.filter((part) => part.columns.length && !isEvidence(part));
  if (!parts.length) return;
  section("grids", "Order grids", null, h("details", {}, h("summary", {}, `Who says what lies where, on ${parts.length} partition${parts.length === 1 ? "" : "s"}`), parts.map(orderGrid)));
}
function objects() {  // models other than the log: the same timeline, by object
  const keys = [...new Set(data.bars.flatMap((bar) => bar.keys))].slice(0, 6);
  section("partitions", "Objects", "Bars run from call to return; bands are faults.", keys.map((key) => h("div", {}, h("h3", {}, key), clientTimeline(key))));
}

function strips() {
  if (!data.strips.length) return;
  section("strips", "Logs of the nodes", "Offsets from left to right, one band per term; the number is the term. Green line: committed. Red dashes: first divergence.",
    data.strips.map((strip) => h("div", {}, h("h3", {}, strip.key), h("p", { class: "note" }, `Known: ${strip.known}.` +
      (strip.divergence === null ? " No divergence." : ` First divergence at offset ${strip.divergence}.`)), h("div", { class: "scroll" }, stripSvg(strip)))));
}
function stripSvg(strip) {
  const runs = strip.nodes.flatMap((node) => node.runs);
  const low = Math.min(0, ...runs.map((run) => run[0])), high = Math.max(low + 1, ...runs.map((run) => run[1]));
  const width = 1160, x = (offset) => 90 + ((offset - low) / (high - low)) * (width - 120);
  const svg = s("svg", { width, height: 26 * strip.nodes.length + 30, role: "group", "aria-label": `logs of ${strip.key}` });
  strip.nodes.forEach((node, at) => {
    const top = 6 + at * 26;
    svg.append(s("text", { x: 4, y: top + 14 }, node.node));
    for (const [first, stop, term] of node.runs) {
      const wide = Math.max(1.5, x(stop) - x(first) - 0.5);
      const style = term === null ? "s5" : `s${term % 5}`;
      svg.append(explain(s("rect", { class: `op ${style} ok`, x: x(first), y: top, width: wide, height: 19 }),
        `${node.node} ${strip.key}: offsets ${first} to ${stop - 1}, ${term === null ? "term not known" : `term ${term}`}`));
      if (term !== null && wide > 16) svg.append(s("text", { x: x(first) + 3, y: top + 14 }, String(term)));
    }
    if (node.committed !== null) svg.append(s("line", { class: "committed", x1: x(node.committed), x2: x(node.committed), y1: top - 2, y2: top + 21 }));
  });
  const bottom = 26 * strip.nodes.length + 8;
  if (strip.divergence !== null) svg.append(s("line", { class: "divergence", x1: x(strip.divergence), x2: x(strip.divergence), y1: 0, y2: bottom }),
    s("text", { class: "bad", x: x(strip.divergence) + 4, y: bottom + 12 }, `! ${strip.divergence}`));
  svg.append(s("text", { class: "soft", x: 90, y: bottom + 14 }, String(low)), s("text", { class: "soft", x: width - 30, y: bottom + 14, "text-anchor": "end" }, String(high)));
  return walkable(svg);
}
