// Numbers as text, the same everywhere.
const NOTHING = "–";

function number(value, digits = 0) {
  if (value === null || value === undefined) return NOTHING;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// A tick's number with as many digits as the distance to the next tick asks for.
function tick(value, step) {
  if (!value) return "0";
  if (step < 0.001) return String(Number(value.toPrecision(3)));
  return number(value, step < 0.01 ? 3 : step < 0.1 ? 2 : step < 1 ? 1 : 0);
}

function shorten(text, most) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

function seconds(value, digits = 1) {
  return value === null || value === undefined ? NOTHING : number(value, digits) + " s";
}

const UNITS = [[86400 * 3, 86400, "d"], [3600 * 3, 3600, "h"], [60 * 3, 60, "min"], [0, 1, "s"]];

// Seconds in the unit that suits them: 42.3 s, 12.1 min, 3.14 h, 5.2 d.
function duration(value) {
  if (value === null || value === undefined) return NOTHING;
  const [, size, name] = UNITS.find(([least]) => Math.abs(value) >= least);
  const scaled = value / size;
  return `${number(scaled, scaled >= 100 ? 0 : scaled >= 10 ? 1 : 2)} ${name}`;
}

const SIZES = { s: 1, min: 60, h: 3600, d: 86400 };

// Seconds as a number of a given unit, with the digits that its size asks for; `digits` of seconds as asked.
function inUnit(value, unit, digits = 1) {
  if (value === null || value === undefined) return NOTHING;
  const scaled = value / SIZES[unit];
  const most = unit === "s" ? (Math.abs(value) >= 1000 ? 0 : digits) : Math.abs(scaled) >= 100 ? 0 : Math.abs(scaled) >= 10 ? 1 : 2;
  return number(scaled, most);
}

// An axis of seconds in a given unit.
function unitAxis(unit) {
  return durationAxis({ s: 0, min: 60 * 3, h: 3600 * 3, d: 86400 * 3 }[unit]);
}

// Ticks of an axis of seconds in one unit for all of them.
function durationAxis(most) {
  const [, size, name] = UNITS.find(([least]) => most >= least);
  const round = ([from, to], wanted) => {
    const { step, values } = ticks([from / size, to / size], wanted);
    return { step: step * size, values: values.map((value) => value * size) };
  };
  return { size, round, format: (value, step) => tick(value / size, step / size) + " " + name };
}

const ROUND_TIMES = [0.1, 0.3, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 10800, 36000, 86400, 259200, 864000, 2592000, 8640000, 31536000];

function roundTime(value) {
  const [, size, name] = [[86400, 86400, "d"], [3600, 3600, "h"], [60, 60, "min"], [0, 1, "s"]].find(([least]) => value >= least);
  return `${number(value / size, value < 1 ? 1 : 0)} ${name}`;
}

// A value of a metric in words, by the kind of its column.
function measured(value, kind, digits, unit) {
  if (value === null || value === undefined) return NOTHING;
  if (kind === "seconds") return unit ? `${inUnit(value, unit)} ${unit}` : duration(value);
  if (kind === "percent") return number(100 * value, digits || 1) + " %";
  return number(value, digits);
}

// A moment on a time axis, with as much detail as the distance between two ticks asks for.
function moment(value, step) {
  const digits = step < 1 ? 1 : 0;
  if (run.span[1] < 600) return number(value, digits) + " s";
  if (step >= 86400) return number(value / 86400) + " d";
  const whole = Math.floor(value);
  const pad = (each) => String(each).padStart(2, "0");
  const clock = `${pad(Math.floor(whole / 3600) % 24)}:${pad(Math.floor(whole / 60) % 60)}:${pad(whole % 60)}`;
  return run.span[1] < 86400 ? (step >= 60 ? clock.slice(0, 5) : clock) : `${Math.floor(whole / 86400)}d ${clock.slice(0, 5)}`;
}

function cellText(value, column) {
  if (value === null || value === undefined) return NOTHING;
  if (column.kind === "seconds") return seconds(value, Math.abs(value) >= 1000 ? 0 : column.digits);
  if (column.kind === "percent") return number(100 * value, 1) + " %";
  if (column.kind === "number") return number(value, column.digits);
  if (column.kind === "flag") return value ? "yes" : "no";
  return String(value);
}
