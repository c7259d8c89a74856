// Plots over the whole history, with the faults as bands behind them.
const WIDE = 1160, TALL = 170, LEFT = 86;

function mark(shape, px, py, style) {  // shapes as well as colours: some readers see one only
  const common = { class: style, "fill-opacity": 0.65, "stroke-width": 0.5 };
  if (shape === 0) return s("circle", { cx: px, cy: py, r: 2.4, ...common });
  if (shape === 1) return s("rect", { x: px - 2.2, y: py - 2.2, width: 4.4, height: 4.4, ...common });
  if (shape === 2) return s("path", { d: `M${px} ${py - 3} l3 5.4 l-6 0 z`, ...common });
  return s("path", { d: `M${px - 2.5} ${py - 2.5} l5 5 m0 -5 l-5 5`, class: style, "stroke-width": 1.4, fill: "none" });
}

function plot(entry) {
  const [start, end] = [data.span[0], Math.max(data.span[1], data.span[0] + 1)];
  const values = entry.series.flatMap((series) => series.points.map((point) => point[1]));
  const top = Math.max(1, ...values), word = (value) => (entry.unit === "ns" ? moment(value) : Math.round(value).toLocaleString("en"));
  // Latency spans decades: a logarithm shows both the usual and the worst.
  const log = entry.kind === "dots" && top > 50 * Math.max(1, median(values));
  const scale = (value) => (log ? Math.log10(1 + value) / Math.log10(1 + top) : value / top);
  const x = (ns) => LEFT + ((ns - start) / (end - start)) * (WIDE - LEFT - 20), y = (value) => TALL - 24 - scale(value) * (TALL - 44);
  const svg = s("svg", { width: WIDE, height: TALL, role: "group", "aria-label": `${entry.title}, highest ${word(top)}` });
  for (const fault of data.faults) {
    const to = fault.end === null ? end : fault.end;
    if (to < start || fault.start > end) continue;
    const from = x(Math.max(start, fault.start));
    svg.append(explain(s("rect", { class: "fault", x: from, y: 12, width: Math.max(1.5, x(Math.min(end, to)) - from), height: TALL - 36, "fill-opacity": 0.6, "stroke-opacity": 0.4 }), `fault: ${fault.label}`, false));
  }
  const levels = log ? [0, top ** 0.5, top] : [0, top / 2, top];
  for (const level of levels) svg.append(s("line", { class: "rule", x1: LEFT, x2: WIDE - 20, y1: y(level), y2: y(level) }),
    s("text", { class: "soft", x: LEFT - 6, y: y(level) + 4, "text-anchor": "end" }, word(level)));
  for (const [ns, words] of timeTicks(start, end, 7)) {
    svg.append(s("text", { class: "soft", x: x(ns), y: TALL - 6, "text-anchor": "middle" }, words));
  }
  entry.series.forEach((series, at) => {
    const style = styleOf(series.name.replace(/ \(.*/, ""));
    if (entry.kind === "steps") {
      const path = series.points.map(([ns, value], point) => (point ? `H${x(ns)} V${y(value)}` : `M${x(ns)} ${y(value)}`)).join(" ");
      svg.append(s("path", { class: style, d: `${path} H${x(end)}`, "stroke-width": 2, "fill-opacity": 0 }));
    } else if (entry.kind === "spans") {
      for (const [ns, long] of series.points) {
        svg.append(explain(s("rect", { class: `op accused ${style}`, x: x(ns), y: y(long), width: Math.max(2, x(ns + long) - x(ns)), height: TALL - 24 - y(long) }), `nothing acknowledged for ${moment(long)}, from ${since(ns)}`));
      }
    } else for (const [ns, value] of series.points) svg.append(mark(at % 4, x(ns), y(value), style));
  });
  return h("div", { class: "plot" }, h("h3", {}, entry.title), h("p", { class: "note" }, `${entry.about} Highest: ${word(top)}.${log ? " Logarithmic." : ""}`),
    entry.series.length > 1 ? legend(entry.series.map((series, at) => [mark(at % 4, 13, 7, styleOf(series.name.replace(/ \(.*/, ""))), series.name])) : null,
    h("div", { class: "scroll" }, walkable(svg)));
}
function median(values) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : 0;
}
function plots() {
  if (data.plots.length) section("plots", "Plots", "Of the whole history; bands are faults.", data.plots.map(plot));
}

function curve(points, words) {
  const high = Math.max(1e-9, ...points.map((point) => point[1])), far = Math.max(1, points.length - 1);
  const x = (at) => 60 + (at / far) * 600, y = (value) => 110 - (value / high) * 90;
  return s("svg", { width: 700, height: 130, role: "img", "aria-label": words },
    s("path", { class: "s0", "fill-opacity": 0, "stroke-width": 2, d: points.map((point, at) => `${at ? "L" : "M"}${x(at)} ${y(point[1])}`).join(" ") }),
    points.map((point, at) => s("circle", { class: "point", cx: x(at), cy: y(point[1]), r: 2.5 })),
    s("text", { class: "soft", x: 54, y: y(high) + 4, "text-anchor": "end" }, String(high)), s("text", { class: "soft", x: 54, y: 114, "text-anchor": "end" }, "0"));
}
function shrink() {
  if (!data.shrink) return;
  const { steps, p_bug: odds } = data.shrink, parts = [];
  if (steps.length) {
    const words = `${steps[0][0].toLocaleString("en")} to ${steps[steps.length - 1][0].toLocaleString("en")} events in ${steps.length} steps`;
    parts.push(h("p", {}, words), curve(steps.map(([events], at) => [at, events]), words));
  }
  if (odds.length) parts.push(h("h3", {}, "Probability of the bug, by events"), curve(odds, "probability of the bug by events"));
  section("shrink", "Shrink history", "How small the failing scenario became.", parts);
}
