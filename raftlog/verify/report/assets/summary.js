// Verdict bar, story, and the tables.
const GLYPH = { valid: "\u2714", invalid: "\u2716", unknown: "?", "not checked": "\u2013" };

function copyButton(text, code) {
  const button = h("button", { type: "button", "aria-label": `copy: ${text}` }, "copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "copied";
    } catch {  // a page from disk may not reach the clipboard: select, so that Ctrl-C does it
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "selected";
    }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  return button;
}

function verdictBar() {
  const { headline, verdict, failing, unknown, facts, notes, name } = data.summary;
  document.title = `${headline} ${name} - raftlog`;
  page.append(h("div", { class: `bar ${verdict}`, id: "verdict" },
    h("h1", {}, `${GLYPH[verdict]} ${headline}`, failing.length ? `: ${failing[0]}` : ""),
    failing.length > 1 ? h("p", {}, `also: ${failing.slice(1).join(", ")}`) : null,
    unknown.map((note) => h("p", {}, `budget spent: ${note}`)),
    notes.map((note) => h("p", { class: "note" }, note)),
    h("div", { class: "facts" }, facts.map(([what, value]) =>
      h("span", {}, h("b", {}, what), h("span", { class: "mono" }, value)))),
    commandList().map(([what, text]) => {
      const code = h("code", {}, text);
      return h("div", { class: "command" }, h("span", { class: "what" }, what), code, copyButton(text, code));
    })));
}

function story() {
  section("story", "What happened", null, h("ol", { class: "story" }, data.story.map((line) => h("li", {}, line))));
}

function witnessOf(entry) {
  if (!entry.witness) return "";
  const operations = entry.witness.operations || [];
  return h("details", { open: entry.status === "invalid" ? "" : null },
    h("summary", {}, "first witness"),
    h("p", { class: "witness" }, entry.witness.text),
    operations.map((op) => h("pre", { class: "witness-operation" }, JSON.stringify(op))));
}

function classTable() {
  const order = { invalid: 0, unknown: 1, valid: 2 };
  const entries = [...data.classes].sort((one, other) =>
    order[one.status] - order[other.status] || other.count - one.count);
  const lacking = data.not_checked;
  section("classes", "Anomalies", "Every class of which this history could show an example. What is allowed here is counted all the same.",
    entries.length ? table(["class", "status", "count", "allowed", "definition and first witness"], entries.map((entry) =>
      h("tr", { class: entry.status === "valid" && entry.count ? "allowed" : entry.status,
        id: `class-${entry.name}`, "data-class": entry.name, "data-status": entry.status },
        h("td", {}, h("code", {}, entry.name)),
        h("td", {}, `${GLYPH[entry.status]} ${entry.status}`),
        h("td", { class: "number" }, entry.count),
        h("td", {}, entry.allowed ? "yes" : "no"),
        h("td", {}, entry.definition, entry.note ? h("p", { class: "note" }, entry.note) : null, witnessOf(entry))))) : null,
    lacking.length ? h("p", { class: "note", id: "not-checked" }, `${GLYPH["not checked"]} ${lacking.length} not checked, for the history lacks their evidence: ${lacking.join(", ")}.`) : null);
}

// What the judge proved, a line a claim; what the faults cost; how fast it was.
function proved(title) {
  const { faults, more_faults: more, speed } = data.cost, claims = [...data.claims, ...data.run_claims];
  if (!claims.length && !speed.length && !data.idle.length) return;
  const row = (fault) => h("tr", {}, h("td", {}, fault.label), h("td", { class: "number" }, since(fault.start)),
    h("td", { class: "number" }, fault.end === null ? "to the end" : fault.end === fault.start ? "an instant" : moment(fault.end - fault.start)),
    h("td", { class: "number" }, fault.unavailable === null ? "no operation waited" : moment(fault.unavailable)),
    h("td", { class: "number" }, fault.worst === null ? "" : `${moment(fault.worst[0])} on ${fault.worst[1]}`));
  const columns = ["fault", "from", "for", "none answered for", "the worst one"], parts = [];
  if (claims.length) parts.push(h("ul", { class: "claims" }, claims.map((line) => h("li", {}, line))));
  if (data.idle.length) parts.push(h("p", { class: "note", id: "idle" }, `${GLYPH["not checked"]} ${data.idle.length} check${data.idle.length === 1 ? "" : "s"} of the run's own not exercised, compared 0 times: ${data.idle.join(", ")}.`));
  if (speed.length) parts.push(h("h3", {}, "Throughput and latency"), table(["operation", "answered", "throughput", "median", "99 %", "longest"],
    speed.map((one) => h("tr", {}, h("td", {}, h("code", {}, one.f)), [one.count, one.rate, one.median, one.p99, one.most].map((text) => h("td", { class: "number" }, text)))), { class: "numbers" }));
  if (faults.length) {
    const first = faults.slice(0, 12), rest = faults.slice(12);
    parts.push(h("h3", {}, `${(faults.length + more).toLocaleString("en")} fault${faults.length + more === 1 ? "" : "s"}, and the longest time around each in which clients waited and none was answered`), table(columns, first.map(row), { class: "numbers" }));
    if (rest.length) parts.push(h("details", {}, h("summary", {}, `${rest.length} more${more ? `, and ${more} left out` : ""}`), table(columns, rest.map(row), { class: "numbers" })));
  }
  section("proved", title, null, parts);
}

function invariants() {
  if (!data.invariants.length && !data.probes.length && !data.buggify.length) return;
  const parts = [];
  if (data.invariants.length) {
    const columns = ["name", ...new Set(data.invariants.flatMap(Object.keys).filter((key) => key !== "name"))];
    parts.push(table(columns, data.invariants.map((row) =>
      h("tr", { class: /violated|fail|invalid/i.test(row.status || "") ? "invalid" : row.status === "not exercised" ? "unknown" : null },
        columns.map((name) => h("td", {}, row[name] === undefined ? "" : row[name]))))));
  }
  for (const [name, entries] of [["Probes", data.probes], ["Buggify sites", data.buggify]]) {
    if (!entries.length) continue;
    const missed = entries.filter(([, hits]) => hits === 0).length;
    parts.push(h("h3", {}, `${name}: ${entries.length - missed} of ${entries.length} reached`),
      table(["name", "hits"], entries.map(([what, hits]) => h("tr", { class: hits ? null : "unknown" },
        h("td", {}, h("code", {}, what)), h("td", { class: "number" }, hits || "0, never reached")))));
  }
  section("invariants", "Invariants, probes, buggify", "Checked by the run itself: after every turn in the simulator, at the end of a black-box run.", parts);
}

function manifest() {
  if (!data.manifest.length) return;
  section("manifest", "Manifest", "What this run was made of.", table(["what", "value"],
    data.manifest.map(([name, value]) => h("tr", {}, h("td", {}, name), h("td", { class: "mono" }, value)))));
}
