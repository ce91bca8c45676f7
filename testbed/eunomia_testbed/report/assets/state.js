// What the page knows and what its reader has chosen; everything that draws listens for a change of choice.
const run = JSON.parse(document.getElementById("data").textContent);
const chosen = { app: null, zoom: null, run: run.first, by: null, group: null };
const listeners = [];

function onChange(listener) {
  listeners.push(listener);
}

function choose(change) {
  Object.assign(chosen, change);
  writeAddress();
  listeners.forEach((listener) => listener());
}

// What another policy left for a part, such as its distribution; null where it left nothing.
function viewOf(part, at) {
  const { ofAll, views } = run.parts[part];
  const view = views[ofAll ? 0 : at];
  return view ? view.data : null;
}

// The runs to compare the chosen one with: of each policy the one with the same seed, or its first.
function compared() {
  const { seed } = run.runs[chosen.run];
  const best = new Map();
  run.runs.forEach((each, at) => {
    if (!best.has(each.policy) || each.seed === seed) best.set(each.policy, at);
  });
  best.set(run.runs[chosen.run].policy, chosen.run);
  return run.policies.filter((policy) => best.has(policy)).map((policy) => best.get(policy));
}

function toggleApp(app) {
  choose({ app: app === null || app === chosen.app ? null : app });
}

function isFaded(app) {
  return chosen.app !== null && app !== null && app !== undefined && app !== chosen.app;
}

// The choice stands in the address, such as #app=halving&from=20&to=60&policy=las&seed=1&by=user&group=ana, so that it can be sent.
function writeAddress() {
  const words = new URLSearchParams();
  if (chosen.app !== null) words.set("app", chosen.app);
  if (chosen.zoom) {
    words.set("from", chosen.zoom[0].toFixed(2));
    words.set("to", chosen.zoom[1].toFixed(2));
  }
  if (chosen.run !== run.first) {
    words.set("policy", run.runs[chosen.run].policy);
    words.set("seed", run.runs[chosen.run].seed);
  }
  if (chosen.by !== null) words.set("by", chosen.by);
  if (chosen.group !== null) words.set("group", run.groups[wayShown()].names[chosen.group]);
  const text = words.toString();
  history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
}

function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  const [from, to] = [parseFloat(words.get("from")), parseFloat(words.get("to"))];
  chosen.app = run.apps.includes(words.get("app")) ? words.get("app") : null;
  chosen.zoom = from < to ? clampZoom([from, to]) : null;
  const named = run.runs.findIndex((each) => each.policy === words.get("policy") && String(each.seed) === (words.get("seed") || String(each.seed)));
  chosen.run = named < 0 ? run.first : named;
  chosen.by = words.get("by") === "app" || run.groups[words.get("by")] ? words.get("by") : null;
  const group = wayShown() === "app" ? -1 : run.groups[wayShown()].names.indexOf(words.get("group"));
  chosen.group = group < 0 ? null : group;
  listeners.forEach((listener) => listener());
}

function clampZoom([from, to]) {
  const [first, last] = run.span;
  const length = Math.min(Math.max(to - from, (last - first) / 500), last - first);
  const start = Math.min(Math.max(from, first), last - length);
  return length >= last - first ? null : [start, start + length];
}
