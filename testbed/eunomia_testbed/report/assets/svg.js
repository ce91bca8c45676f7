// Small helpers: elements, colours of apps, scales and ticks. Text is always set as text, never as markup.
const NAMESPACE = "http:" + "//www.w3.org/2000/svg"; // a name, not an address: nothing is fetched

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(NAMESPACE, name), attributes, children);
}

function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

// Okabe and Ito's colours without yellow and black; an app's colour is its rank by name. After six come two kinds of
// hatching (dashes for lines), after eighteen grey, until the app is chosen.
const HUES = ["#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"];
const DARK_INK = [true, true, false, false, false, true];
const DASHES = [null, "7 3", "2 3"];

const RANKS = new Map(run.apps.map((app, rank) => [app, rank]));

function look(app) {
  const rank = RANKS.has(app) ? RANKS.get(app) : -1;
  return lookOf(rank, rank >= 18 && app === chosen.app);
}

function lookOf(rank, always = false) {
  const grey = rank < 0 || (rank >= 18 && !always);
  const hue = grey ? "var(--grey)" : HUES[rank % 6];
  const weave = grey || rank >= 18 ? 0 : Math.floor(rank / 6);
  return { hue, dash: DASHES[weave], ink: !grey && DARK_INK[rank % 6] ? "#1b1b1b" : "#fff", weave };
}

function paint({ hue, weave }) {
  return weave ? `url(#weave-${weave}-${HUES.indexOf(hue)})` : hue;
}

// Patterns that all drawings share: hatchings of apps, and of a slot's activities other than running.
function patterns() {
  const weaves = [1, 2].flatMap((weave) => HUES.map((hue, at) =>
    svg("pattern", { id: `weave-${weave}-${at}`, width: 7, height: 7, patternUnits: "userSpaceOnUse" },
      svg("rect", { width: 7, height: 7, fill: hue }),
      weave === 1 ? svg("path", { d: "M0 3.5H7", class: "weft" }) : svg("circle", { cx: 3.5, cy: 3.5, r: 1.5, class: "knot" }))));
  const hatches = { start: "M-1 1L1 -1M0 6L6 0M5 7L7 5", restore: "M-1 5L1 7M0 0L6 6M5 -1L7 1", save: "M1.5 0V6M4.5 0V6", wait: "M0 1.5H6M0 4.5H6", idle: "M1 1.5h1M4 4.5h1" };
  const overlays = Object.entries(hatches).map(([name, path]) =>
    svg("pattern", { id: "hatch-" + name, width: 6, height: 6, patternUnits: "userSpaceOnUse" }, svg("path", { d: path, class: "hatch" })));
  return svg("svg", { width: 0, height: 0, class: "patterns", "aria-hidden": "true" }, svg("defs", {}, ...weaves, ...overlays));
}

// `log` is false, true, or of an axis with zero the value up to which it is linear.
function scale([from, to], [left, right], log = false) {
  const map = log === true ? Math.log : log ? (value) => Math.sign(value) * Math.log1p(Math.abs(value) / log) : (value) => value;
  const [a, b] = [map(from), map(to)];
  const at = (value) => left + ((map(value) - a) / (b - a || 1)) * (right - left);
  at.invert = (pixel) => from + ((pixel - left) / (right - left)) * (to - from);
  at.domain = [from, to];
  return at;
}

// Round numbers within the range, about as many as asked for.
function ticks([from, to], wanted) {
  const rough = (to - from) / Math.max(wanted, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to + step * 1e-9; at += 1) found.push(at * step || 0); // never -0
  return { step, values: found };
}

// Round numbers of a logarithmic axis: as many of each power of ten as there is room for.
function logTicks([from, to], wanted = 12) {
  const within = (kept) => {
    const found = [];
    for (let power = Math.floor(Math.log10(from)); power <= Math.ceil(Math.log10(to)); power += 1) {
      kept.map((each) => Number(`${each}e${power}`)).filter((each) => each >= from && each <= to).forEach((each) => found.push(each));
    }
    return found;
  };
  const values = [[1, 2, 5], [1, 3]].map(within).find((found) => found.length <= wanted) || within([1]);
  return { step: 0.1, values: values.filter((_, at) => at % Math.ceil(values.length / Math.max(wanted, 2)) === 0) };
}

// Values that lie so far apart that a linear axis would show most of them as nothing.
const WIDE = 30;

function spread(values) {
  const known = values.filter((value) => value > 0 && Number.isFinite(value));
  const [low, high] = [known.reduce((a, b) => Math.min(a, b), Infinity), known.reduce((a, b) => Math.max(a, b), 0)];
  return { low, high, wide: known.length > 1 && high > WIDE * low };
}

// A logarithmic axis that holds 0: linear up to the power of ten below the least value, or a ten-thousandth of the largest.
function zeroLog(values, room = 1.15) {
  const { low, high } = spread(values);
  const least = Math.max(10 ** Math.floor(Math.log10(low)), high / 1e4);
  const above = (domain, wanted) => ({ step: 0.1, values: [0, ...logTicks([least, domain[1]], wanted - 1).values] });
  return { log: least, domain: [0, high * room], ticks: above };
}

// Round moments of a time axis.
const MOMENT_STEPS = [60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000];

function momentTicks([from, to], wanted) {
  const step = MOMENT_STEPS.find((each) => each >= (to - from) / Math.max(wanted, 1));
  if (!step || (to - from) / Math.max(wanted, 1) < 30) return ticks([from, to], wanted);
  const values = [];
  for (let at = Math.ceil(from / step - 1e-9); at * step <= to; at += 1) values.push(at * step || 0); // never -0
  return { step, values };
}

// Round times within the range, for a logarithmic axis of seconds; not more than there is room for.
function timeTicks([from, to], wanted) {
  const found = ROUND_TIMES.filter((each) => each >= from && each <= to);
  const every = Math.max(1, Math.ceil(found.length / Math.max(wanted, 2)));
  return { step: 0, values: found.filter((_, at) => at % every === 0) };
}

// A range around the values, with some room, that holds `include` too.
function around(values, include = [], room = 0.06) {
  const known = [...values, ...include].filter((value) => Number.isFinite(value));
  const [low, high] = [known.reduce((a, b) => Math.min(a, b), Infinity), known.reduce((a, b) => Math.max(a, b), -Infinity)];
  if (!known.length) return [0, 1];
  const margin = (high - low || Math.abs(high) || 1) * room;
  return [low - margin, high + margin];
}
