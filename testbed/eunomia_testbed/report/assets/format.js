// Numbers as text, the same everywhere.
const NOTHING = "–";

function number(value, digits = 0) {
  if (value === null || value === undefined) return NOTHING;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// A tick's number with as many digits as the distance to the next tick asks for.
function tick(value, step) {
  return number(value, step < 0.01 ? 3 : step < 0.1 ? 2 : step < 1 ? 1 : 0);
}

function shorten(text, most) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

function seconds(value, digits = 1) {
  return value === null || value === undefined ? NOTHING : number(value, digits) + " s";
}

// A moment on a time axis, with as much detail as the distance between two ticks asks for.
function moment(value, step) {
  const digits = step < 1 ? 1 : 0;
  if (run.span[1] < 600) return number(value, digits) + " s";
  const whole = Math.floor(value);
  const pad = (each) => String(each).padStart(2, "0");
  const clock = `${pad(Math.floor(whole / 3600) % 24)}:${pad(Math.floor(whole / 60) % 60)}:${pad(whole % 60)}`;
  return run.span[1] < 86400 ? clock : `${Math.floor(whole / 86400)}d ${clock.slice(0, 5)}`;
}

function cellText(value, column) {
  if (value === null || value === undefined) return NOTHING;
  if (column.kind === "seconds") return seconds(value, column.digits);
  if (column.kind === "percent") return number(100 * value, 1) + " %";
  if (column.kind === "number") return number(value, column.digits);
  if (column.kind === "flag") return value ? "yes" : "no";
  return String(value);
}
