// Puts the page together: the legend, each part's drawing and tables, the downloads, the keys.
const DRAWN = { held: drawHeld, fairness: drawFairness, searches: drawSearches, decisions: drawDecisions, provenance: drawDownloads };
const MANY_APPS = 24;

function drawLegend() {
  const legend = document.getElementById("legend");
  const reset = html("button", { class: "reset", onclick: () => choose({ app: null, zoom: null }) }, "Show everything");
  const many = run.apps.length > MANY_APPS;
  const picker = html("select", { "aria-label": "Show one app alone", onchange: (event) => choose({ app: event.target.value || null }) },
    html("option", { value: "" }, `all ${run.apps.length} apps`), ...run.apps.map((app) => html("option", { value: app }, app)));
  onChange(() => {
    picker.value = chosen.app || "";
    reset.hidden = chosen.app === null && chosen.zoom === null;
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

function start() {
  document.body.append(patterns(), tip);
  drawLegend();
  for (const [name, part] of Object.entries(run.parts)) {
    const section = document.getElementById(name);
    if (part.data && DRAWN[name]) DRAWN[name](section.querySelector(".drawn"), part.data);
    part.tables.forEach((spec) => new SortableTable(section.querySelector(".tables"), spec));
  }
  document.querySelectorAll("nav a").forEach((link) => link.addEventListener("click", (event) => {
    event.preventDefault(); // the address is kept for the choice of app and time
    const title = document.getElementById(link.hash.slice(1)).querySelector("h2");
    title.scrollIntoView({ behavior: "smooth" });
    title.focus({ preventScroll: true });
  }));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") choose({ app: null, zoom: null });
  });
  addEventListener("hashchange", readAddress);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
  readAddress();
  document.documentElement.dataset.height = document.documentElement.scrollHeight; // for pictures of the whole page
}

start();
