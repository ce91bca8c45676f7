// What the page knows and what its reader has chosen; everything that draws listens for a change of choice.
const run = JSON.parse(document.getElementById("data").textContent);
const chosen = { app: null, zoom: null };
const listeners = [];

function onChange(listener) {
  listeners.push(listener);
}

function choose(change) {
  Object.assign(chosen, change);
  writeAddress();
  listeners.forEach((listener) => listener());
}

function toggleApp(app) {
  choose({ app: app === null || app === chosen.app ? null : app });
}

function isFaded(app) {
  return chosen.app !== null && app !== null && app !== undefined && app !== chosen.app;
}

// The choice stands in the address, such as #app=halving&from=20&to=60, so that it can be sent.
function writeAddress() {
  const words = new URLSearchParams();
  if (chosen.app !== null) words.set("app", chosen.app);
  if (chosen.zoom) {
    words.set("from", chosen.zoom[0].toFixed(2));
    words.set("to", chosen.zoom[1].toFixed(2));
  }
  const text = words.toString();
  history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
}

function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  const [from, to] = [parseFloat(words.get("from")), parseFloat(words.get("to"))];
  chosen.app = run.apps.includes(words.get("app")) ? words.get("app") : null;
  chosen.zoom = from < to ? clampZoom([from, to]) : null;
  listeners.forEach((listener) => listener());
}

function clampZoom([from, to]) {
  const [first, last] = run.span;
  const length = Math.min(Math.max(to - from, (last - first) / 500), last - first);
  const start = Math.min(Math.max(from, first), last - length);
  return length >= last - first ? null : [start, start + length];
}
