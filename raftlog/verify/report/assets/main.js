// Order of the page: verdict, evidence, then the rest. Keys: e error, t theme, + and - zoom, 1-9 sections.
verdictBar();
const menu = h("nav", { "aria-label": "sections" });
page.append(menu);
const passed = data.summary.verdict === "valid";
if (passed) proved("What was proved");
story();
diagram();
strips();
partitions();
classTable();
if (!passed) proved("What held all the same, and what it cost");
invariants();
plots();
shrink();
manifest();
grids();

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}
menu.append(...sections.map(([id, title], at) => h("a", { href: `#${id}` }, `${at < 9 ? at + 1 : "\u00b7"} ${title}`)),
  h("span", { class: "push" }, data.accused.length ? h("button", { type: "button", onclick: toError }, "e: first error") : null, " ",
    h("button", { type: "button", onclick: toggleTheme }, "t: dark or light")));

page.append(h("p", { class: "note keys" }, "Keys: digits jump to sections, e to the first error; Tab enters a picture, arrows walk in it, " +
  "Enter keeps a note open, Escape lets go; + and - zoom, t switches dark and light."));
for (const box of document.querySelectorAll(".tall")) {
  centre(box, box.querySelector(".accused-operation, .accused-row .op, td.differs, td.twice, .grid tr.accused"));
}
const shown = document.getElementById("diagram-box"), band = document.querySelector(".fault-band");
if (!data.accused.length && !passed) shown.scrollTop = shown.scrollHeight * (data.window.focus - data.window.start) / (data.window.end - data.window.start) - 360;
else if (!data.accused.length && band) shown.scrollTop += band.getBoundingClientRect().top - shown.getBoundingClientRect().top - 120;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") letGo();
  else if (event.key === "e") toError();
  else if (event.key === "t") toggleTheme();
  else if (event.key === "+" || event.key === "=") zoomBy(2);
  else if (event.key === "-") zoomBy(0.5);
  else if (/^[1-9]$/.test(event.key) && sections[event.key - 1]) {
    const target = document.getElementById(sections[event.key - 1][0]);
    target.scrollIntoView();
    target.querySelector("h2").setAttribute("tabindex", -1);
    target.querySelector("h2").focus();
  }
});
document.addEventListener("click", letGo);
document.addEventListener("scroll", () => kept || letGo(), { passive: true });
document.documentElement.dataset.ready = "yes";
