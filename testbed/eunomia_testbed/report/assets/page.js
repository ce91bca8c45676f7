// Puts the page together: the legend, each part's drawing and tables, the downloads, the keys.
const DRAWN = {
  policies: drawPolicies, held: drawHeld, fairness: drawFairness, speed: drawSpeed, types: drawTypes, cluster: drawCluster,
  searches: drawSearches, decisions: drawDecisions, provenance: drawDownloads,
};
const MANY_APPS = 24;

function drawLegend() {
  const legend = document.getElementById("legend");
  const reset = html("button", { class: "reset", onclick: () => choose({ app: null, zoom: null, group: null }) }, "Show everything");
  const many = run.apps.length > MANY_APPS;
  const picker = html("select", { "aria-label": "Show one app alone", onchange: (event) => choose({ app: event.target.value || null }) },
    html("option", { value: "" }, `all ${number(Math.max(run.appCount, run.apps.length))} apps`), ...run.apps.map((app) => html("option", { value: app }, app)));
  onChange(() => {
    picker.value = chosen.app || "";
    reset.hidden = chosen.app === null && chosen.zoom === null && chosen.group === null;
    const zoom = chosen.zoom ? html("span", { class: "zoom" }, `${moment(chosen.zoom[0], 0.1)} to ${moment(chosen.zoom[1], 0.1)}`) : null;
    const items = many ? [picker] : run.apps.map(appButton);
    legend.replaceChildren(...[...items, zoom, reset].filter((item) => item !== null));
  });
}

function drawDownloads(parent, { run: name, csv }) {
  const links = Object.entries(csv).map(([table, text]) => {
    const save = () => {
      const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
      html("a", { href: address, download: `${name}-${table.replace("/", "-")}.csv` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
    };
    return html("button", { onclick: save }, `${table}.csv`);
  });
  if (links.length) parent.append(html("p", { class: "downloads" }, "Tables as CSV: ", ...links));
}

function drawView(name, part, at, place) {
  const view = part.views[at];
  if (!view) return;
  const before = listeners.length;
  if (view.data && DRAWN[name]) DRAWN[name](place.querySelector(".drawn"), view.data);
  view.tables.forEach((spec) => new SortableTable(place.querySelector(".tables"), spec));
  listeners.slice(before).forEach((listener) => listener());
}

// A part shows the chosen run; it is drawn when it is chosen for the first time.
function drawPart(name, part) {
  const places = [...document.getElementById(name).querySelectorAll(":scope > .view")];
  const title = document.querySelector(`#${name} h2`);
  const drawn = new Set();
  onChange(() => {
    const at = part.ofAll ? 0 : chosen.run;
    places.forEach((place, which) => { place.hidden = which !== at; });
    if (!part.ofAll) title.dataset.run = run.runs[at].name;
    if (drawn.has(at)) return;
    drawn.add(at);
    drawView(name, part, at, places[at]);
  });
}

function start() {
  document.body.append(patterns(), tip);
  drawLegend();
  drawRunPicker();
  Object.entries(run.parts).forEach(([name, part]) => drawPart(name, part));
  document.querySelectorAll("nav a").forEach((link) => link.addEventListener("click", (event) => {
    event.preventDefault(); // the address is kept for the choice of app and time
    const title = document.getElementById(link.hash.slice(1)).querySelector("h2");
    title.scrollIntoView({ behavior: "smooth" });
    title.focus({ preventScroll: true });
  }));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") choose({ app: null, zoom: null, group: null });
  });
  addEventListener("hashchange", readAddress);
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = [...document.querySelectorAll("details:not([open])")];
    unfolded.forEach((each) => { each.open = true; });
  });
  addEventListener("afterprint", () => unfolded.forEach((each) => { each.open = false; }));
  readAddress();
  document.documentElement.dataset.height = document.documentElement.scrollHeight; // for pictures of the whole page
}

start();
