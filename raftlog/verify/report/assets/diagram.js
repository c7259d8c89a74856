// Space-time: one vertical axis of time, a lane per node and client, the fault ribbon beside it.
const LANE = 92, AXIS = 86, RIBBON = 18, RIBBONS_MAX = 6, HEAD = 36;
let zoom = 1;

// Overlapping faults get columns of their own, so that none hides another.
function ribbons(start, end) {
  const shown = data.faults.filter((fault) => fault.start <= end && (fault.end === null || fault.end >= start));
  const free = [];
  return shown.map((fault) => {
    let column = free.findIndex((until) => until < fault.start);
    if (column < 0) column = free.length;
    free[column] = fault.end === null ? Infinity : Math.max(fault.end, fault.start + 1);
    return { fault, column: Math.min(column, RIBBONS_MAX - 1) };
  });
}

function diagramBody() {
  const { start, end } = data.window;
  const rows = data.bars.length || Math.min(160, data.messages.length + data.ticks.length);
  const height = Math.min(9000, Math.max(420, 13 * rows) * zoom);
  const y = (ns) => 12 + ((ns - start) / (end - start)) * (height - 24);
  const bands = ribbons(start, end);
  const left = AXIS + 6 + RIBBON * (bands.length ? Math.max(...bands.map((band) => band.column)) + 1 : 0);
  const x = new Map(data.lanes.map((lane, at) => [`${lane.kind} ${lane.id}`, left + 16 + LANE * at + LANE / 2]));
  const width = left + 30 + LANE * data.lanes.length;
  const svg = s("svg", { width, height, id: "space-time", role: "group", "aria-label": "space-time diagram" });
  timeAxis(svg, y, start, end, width, height);
  for (const { fault, column } of bands) svg.append(faultBand(fault, AXIS + RIBBON * column, y, start, end));
  const words = data.lanes.flatMap((lane) => (lane.kind === "node" ? nodeLane(svg, lane, x, y, start, end) : []));
  for (const bar of data.bars) wire(svg, bar, x, y, end);
  for (const message of data.messages) arrow(svg, message, x, y, end);
  for (const tick of data.ticks) {
    const at = x.get(`node ${tick.where}`);
    if (at === undefined) continue;
    const mark = s("line", { x1: at - 20, x2: at + 20, y1: y(tick.at), y2: y(tick.at), class: `tick ${tick.name === "sync" ? "sync" : ""}` });
    svg.append(explain(mark, `${since(tick.at)} ${tick.where} ${tick.name} ${tick.more}`));
  }
  svg.append(...words);
  const places = new Map();
  for (const bar of data.bars) clientBar(svg, bar, x, y, end, places);
  const pair = data.accused.map((index) => places.get(index)).filter(Boolean);
  if (pair.length > 1) {
    svg.append(s("path", { class: "pair", d: pair.map(([px, py], at) => `${at ? "L" : "M"}${px} ${py}`).join(" ") }));
  }
  const names = s("svg", { width, height: HEAD, class: "lanes", "aria-hidden": "true" });  // stays above while the rest scrolls
  for (const lane of data.lanes) {
    const at = x.get(`${lane.kind} ${lane.id}`);
    names.append(s("text", { x: at, y: 14, "text-anchor": "middle", class: "soft" }, lane.kind),
      s("text", { x: at, y: 28, "text-anchor": "middle", "font-weight": lane.kind === "node" ? 700 : 400 }, String(lane.id).slice(0, 13)));
  }
  return [names, walkable(svg)];
}

function timeAxis(svg, y, start, end, width, height) {
  for (const [ns, words] of timeTicks(start, end, Math.max(6, Math.round(height / 80)))) {
    svg.append(s("line", { x1: AXIS - 4, x2: width, y1: y(ns), y2: y(ns), class: "rule" }),
      s("text", { x: AXIS - 8, y: y(ns) + 4, "text-anchor": "end", class: "soft" }, words));
  }
}

function faultBand(fault, at, y, start, end) {
  const from = Math.max(fault.start, start), to = Math.min(fault.end === null ? end : fault.end, end);
  const tall = Math.max(4, y(to) - y(from));
  const words = `fault: ${fault.label}\n${since(fault.start)} to ${fault.end === null ? "the end" : since(fault.end)}`;
  return explain(s("g", { class: "fault-band" },
    s("rect", { class: "fault", x: at, y: y(from), width: RIBBON - 3, height: tall }),
    tall > 40 ? s("text", { transform: `translate(${at + 11} ${y(from) + 4}) rotate(90)` }, fault.label.slice(0, Math.floor(tall / 7))) : null), words);
}

const LETTER = { leader: "L", candidate: "C", pre_candidate: "C?", follower: "F", starting: "boots", paused: "paused", down: "down" };
function nodeLane(svg, lane, x, y, start, end) {
  const at = x.get(`node ${lane.id}`), found = [];
  for (const one of lane.segments) {
    const tall = Math.max(2, y(one.to) - y(one.from));
    const wide = one.role === "leader" ? 26 : one.role === "down" ? 8 : 18;
    const role = LETTER[one.role] ? one.role : "unknown";
    const box = s("rect", { class: `role ${role}`, x: at - wide / 2, y: y(one.from), width: wide, height: tall });
    svg.append(explain(box, `${lane.id}: ${one.role}${one.term ? `, term ${one.term}` : ""}\nfrom ${since(one.from)} to ${since(one.to)}`));
    const words = `${LETTER[one.role] || ""}${one.term ? ` t${one.term}` : ""}`;
    if (tall > 12 && words) found.push(s("text", { class: "over", x: at + wide / 2 + 2, y: y(one.from) + 11 }, words));
  }
  return found;  // drawn over the arrows
}

// A call travels to the node that answered and back. When it was there nobody recorded: the middle.
function wire(svg, bar, x, y, end) {
  const client = x.get(`client ${bar.process}`), node = bar.node === null ? undefined : x.get(`node ${bar.node}`);
  if (client === undefined || node === undefined) return;
  const to = bar.end === null ? end : bar.end;
  svg.append(s("path", { class: `wire ${bar.end === null ? "lost" : ""}`,
    d: `M${client} ${y(bar.start)} L${node} ${y((bar.start + to) / 2)}${bar.end === null ? "" : ` L${client} ${y(to)}`}` }));
}

function arrow(svg, message, x, y, end) {
  const from = x.get(`node ${message.from}`) ?? x.get(`client ${message.from}`);
  const to = x.get(`node ${message.to}`) ?? x.get(`client ${message.to}`);
  if (from === undefined || to === undefined) return;
  const until = Math.min(message.end === null ? end : message.end, end);
  const style = styleOf(`message ${message.what}`);
  const gone = message.fate === "dropped";
  const tx = gone ? from + (to - from) * 0.75 : to, side = to > from ? -1 : 1;
  const group = s("g", { class: `message ${message.fate}` },
    s("path", { class: `arrow ${style} ${message.fate}`, d: `M${from} ${y(message.start)} L${tx} ${y(until)}` }),
    gone ? s("text", { x: tx, y: y(until) + 4, "text-anchor": "middle", class: "bad" }, "\u2716")
      : s("path", { class: style, d: `M${tx} ${y(until)} l${side * 7} -4 l0 8 z` }),
    message.fate === "duplicate" ? s("text", { x: tx + side * 12, y: y(until) - 3, class: "bad" }, "x2") : null);
  svg.append(explain(group, `${message.what} ${message.from} to ${message.to}: ${message.fate}\nsent ${since(message.start)}` +
    `${message.end === null ? ", never arrived here" : `, ${gone ? "dropped" : "arrived"} ${since(message.end)}`}\n${message.more}`));
}

function clientBar(svg, bar, x, y, end, places) {
  const at = x.get(`client ${bar.process}`);
  if (at === undefined) return;
  const above = [...places.values()].filter(([lane, , label]) => lane === at && label !== null).map(([, , label]) => label);
  const top = y(bar.start), label = bar.accused ? Math.max(top + 10, ...above.map((other) => other + 12)) : null, tall = Math.max(3, y(bar.end === null ? end : bar.end) - top);
  places.set(bar.index, [at, top + Math.min(tall, 40) / 2, label]);
  const group = s("g", { "data-index": bar.index, class: bar.accused ? "accused-operation" : null, id: bar.accused ? `accused-${bar.index}` : null },
    s("rect", { class: `op ${styleOf(bar.f)} ${bar.type} ${bar.accused ? "accused" : ""}`, x: at - 7, y: top, width: 14, height: tall, rx: 2 }),
    bar.type === "fail" ? s("text", { x: at - 4, y: top + 10 }, "\u2715") : null,
    bar.accused ? s("text", { x: at + 10, y: label, class: "bad over" }, `! ${bar.label}`.slice(0, 34)) : null);
  svg.append(explain(group, `${bar.text}\n${since(bar.start)} to ${bar.end === null ? "no return" : since(bar.end)}`));
}

function diagram() {
  if (!data.bars.length && !data.messages.length && !data.ticks.length && !data.faults.length) return;
  const box = h("div", { class: "scroll tall", tabindex: 0, id: "diagram-box" }, diagramBody());
  const redraw = (factor) => {
    zoom = Math.max(0.25, Math.min(16, zoom * factor));
    letGo();
    box.replaceChildren(...diagramBody());
    centre(box, box.querySelector(".accused-operation"));
  };
  const { shown, total, note } = data.window;
  const { given, events, strange, messages, ticks } = data.trace;
  const part = (all, drawn, what) => (all ? `, ${drawn < all ? `${drawn.toLocaleString("en")} of ` : ""}${all.toLocaleString("en")} ${what}` : "");
  const trace = given ? `${events.toLocaleString("en")} trace events${part(messages, data.messages.length, "messages here")}` +
    `${part(ticks, data.ticks.length, "other marks here")}${strange ? `, ${strange} lines not understood` : ""}`
    : "no trace: what is known of the nodes is what they answered";
  section("diagram", "Space and time", `${total ? `${shown.toLocaleString("en")} of ${total.toLocaleString("en")} operations (${note})` : note}; ${trace}.`,
    h("p", {}, h("button", { type: "button", onclick: () => redraw(2) }, "+ zoom in"), " ",
      h("button", { type: "button", onclick: () => redraw(0.5) }, "- zoom out"), " ",
      data.accused.length ? h("button", { type: "button", onclick: toError }, "e: first error") : null),
    legend(diagramKey()), box);
  zoomBy = redraw;
}

// What this picture has, and nothing else.
function diagramKey() {
  const bar = (style, more = {}) => s("rect", { class: `op ${style}`, x: 2, y: 2, width: 22, height: 10, ...more });
  const line = (style) => s("path", { class: style, d: "M1 7 L25 7" });
  const kinds = [...new Set(data.bars.map((one) => one.f))].sort((one, other) => styleOf(one).localeCompare(styleOf(other)));
  const roles = new Set(data.lanes.filter((lane) => lane.kind === "node").flatMap((lane) => lane.segments.map((one) => one.role)));
  const fates = new Set(data.messages.map((message) => message.fate)), types = new Set(data.bars.map((one) => one.type));
  const words = [...new Set(data.messages.map((message) => message.what))].slice(0, 8);
  return [
    ...kinds.slice(0, 8).map((f) => [bar(`${styleOf(f)} ok`), f]),
    types.has("info") && [bar("s5 info"), "dashed: may have happened (info)"],
    types.has("fail") && [bar("s5 fail"), "\u2715 dotted: did not happen (fail)"],
    data.accused.length && [bar("s0 ok accused", { x: 3, y: 3, width: 20, height: 8 }), "! in the witness"],
    data.faults.length && [s("rect", { class: "fault", x: 6, y: 1, width: 12, height: 12 }), "fault"],
    ...[["leader", 22, "L leader, t: its term"], ["candidate", 18, "C candidate"], ["follower", 18, "F follower"], ["pre_candidate", 18, "C? asks for votes first"], ["starting", 18, "boots"], ["paused", 18, "paused"], ["down", 8, "down"]]
      .filter(([role]) => roles.has(role)).map(([role, wide, name]) => [s("rect", { class: `role ${role}`, x: 13 - wide / 2, y: 1, width: wide, height: 12 }), name]),
    ...words.map((what) => [line(`arrow ${styleOf(`message ${what}`)}`), what]),
    fates.has("dropped") && [line("arrow s5 dropped"), "\u2716 dropped"],
    fates.has("duplicate") && [line("arrow s5"), "x2 arrived twice"],
    fates.has("open") && [line("arrow s5 open"), "not arrived in this window"],
    data.ticks.some((tick) => tick.name === "sync") && [line("tick sync"), "sync"],
    data.ticks.some((tick) => tick.name !== "sync") && [line("tick"), "other event of a node"],
    data.bars.some((one) => one.node !== null) && [line("wire"), "call and answer"],
  ].filter(Boolean);
}
let zoomBy = () => {};
function toError() {
  const first = document.querySelector(".accused-operation");
  if (!first) return;
  first.scrollIntoView({ block: "center", inline: "center" });
  first.focus();
}
