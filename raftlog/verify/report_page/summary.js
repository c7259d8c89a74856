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
  const { headline, verdict, failing, unknown, facts, commands, notes, name } = data.summary;
  document.title = `${headline} ${name} - raftlog`;
  page.append(h("div", { class: `bar ${verdict}`, id: "verdict" },
    h("h1", {}, `${GLYPH[verdict]} ${headline}`, failing.length ? `: ${failing[0]}` : ""),
    failing.length > 1 ? h("p", {}, `also: ${failing.slice(1).join(", ")}`) : null,
    unknown.map((note) => h("p", {}, `budget spent: ${note}`)),
    notes.map((note) => h("p", { class: "note" }, note)),
    h("div", { class: "facts" }, facts.map(([what, value]) =>
      h("span", {}, h("b", {}, what), h("span", { class: "mono" }, value)))),
    commands.map(([what, text]) => {
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
  const order = { invalid: 0, unknown: 1, valid: 2, "not checked": 3 };
  const entries = [...data.classes].sort((one, other) =>
    order[one.status] - order[other.status] || other.count - one.count);
  section("classes", "Anomalies", "Every class the judge knows. What is allowed here is counted all the same.",
    table(["class", "status", "count", "allowed", "definition and first witness"], entries.map((entry) =>
      h("tr", { class: entry.status === "valid" && entry.count ? "allowed" : entry.status.replace(" ", "-"),
        id: `class-${entry.name}`, "data-class": entry.name, "data-status": entry.status },
        h("td", {}, h("code", {}, entry.name)),
        h("td", {}, `${GLYPH[entry.status]} ${entry.status}`),
        h("td", { class: "number" }, entry.status === "not checked" ? "" : entry.count),
        h("td", {}, entry.allowed ? "yes" : "no"),
        h("td", {}, entry.definition, entry.note ? h("p", { class: "note" }, entry.note) : null, witnessOf(entry))))));
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
