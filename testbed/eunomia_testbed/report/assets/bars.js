// Lying bars with names to their left. rows: [{label, group, parts: [{value, look, text}], low, high, end, strong, run, app}],
// `unit` is a durationAxis; `low` and `high` are the ends of an interval (null: none), `end` the text behind the bar, and `run` the run that a click shows.
const BAR = 22;
const GROUP_GAP = 8;

function drawBars(parent, { title, describe, rows, format, axis, wide, most, unit }) {
  const places = [];
  let y = 0;
  rows.forEach((row, at) => {
    if (at && row.group !== rows[at - 1].group) y += GROUP_GAP;
    places.push(y);
    y += BAR;
  });
  const grouped = rows.some((row) => row.group);
  const letters = Math.min(Math.max(...rows.map((row) => row.label.length), 3), 22);
  const groupLetters = grouped ? Math.min(Math.max(...rows.map((row) => (row.group || "").length)), 18) : 0;
  const total = (row) => row.parts.reduce((sum, part) => sum + part.value, 0);
  const largest = most || Math.max(...rows.map((row) => Math.max(total(row), row.high ?? 0)), 1e-9);
  const apart = spread(rows.map(total));
  const log = !most && apart.wide; // parts of a whole stay linear
  const ends = Math.max(...rows.map((row) => (row.end || "").length));
  const groupWidth = grouped ? groupLetters * 6.8 + 14 : 0;
  const across = log
    ? { log, domain: [apart.low / 2, largest], format: unit ? roundTime : axis, ticks: unit ? timeTicks : logTicks }
    : { domain: [0, largest], format: unit ? unit.format : axis, ticks: unit && unit.round };
  return new Chart(parent, {
    title: log ? `${title}, logarithmic` : title,
    describe: describe || `${rows.length} bars; arrows step through them`,
    height: y + 30,
    wide,
    margin: { left: groupWidth + letters * 6.9 + 12, right: 16 + ends * 6.6, top: 4, bottom: 24 },
    x: () => across,
    y: () => ({ domain: [y, 0] }),
    draw: (chart) => rows.forEach((row, at) => drawBarRow(chart, row, chart.area.top + places[at], { groupWidth, letters, first: !at || row.group !== rows[at - 1].group, groupLetters, format })),
  });
}

function drawBarRow(chart, row, top, { groupWidth, letters, first, groupLetters, format }) {
  const middle = top + BAR / 2;
  const strong = row.strong ? " strong" : "";
  const faded = isFaded(row.app) ? " faded" : "";
  if (first && row.group) {
    chart.back.append(svg("text", { x: 0, y: middle + 4, class: "name" }, shorten(row.group, groupLetters)));
    if (top > BAR / 2) chart.back.append(svg("line", { x1: 0, x2: chart.area.right, y1: top - GROUP_GAP / 2, y2: top - GROUP_GAP / 2, class: "rule" }));
  }
  chart.back.append(svg("text", { x: chart.area.left - 8, y: middle + 4, class: "name end" + strong + faded }, shorten(row.label, letters)));
  const at = (value) => chart.x(Math.max(value, chart.x.domain[0]));
  let sum = 0;
  for (const part of row.parts) {
    const box = { left: at(sum), right: at(sum + part.value), top: top + 4, bottom: top + BAR - 4 };
    const place = { x: box.left, y: box.top, width: Math.max(box.right - box.left, part.value > 0 ? 0.6 : 0), height: box.bottom - box.top };
    chart.plot.append(svg("rect", { ...place, class: `lying ${part.look}${strong}${faded}` }));
    if (HATCHED.includes(part.look)) chart.plot.append(svg("rect", { ...place, fill: `url(#hatch-${part.look})`, class: faded }));
    sum += part.value;
    if (part.value > 0) chart.mark({ box: { ...box, top, bottom: top + BAR }, app: row.app, run: row.run, text: [row.group ? `${row.group}: ${row.label}` : row.label, `${part.text ? part.text + " " : ""}${format(part.value)}`, ...(row.notes || [])] });
  }
  if (row.low !== undefined && row.low !== null) {
    const [low, high] = [at(row.low), at(row.high)];
    chart.front.append(svg("path", { d: `M${low} ${middle - 4}v8M${high} ${middle - 4}v8M${low} ${middle}H${high}`, class: "whisker" }));
  }
  if (row.end) chart.front.append(svg("text", { x: at(Math.max(sum, row.high ?? 0)) + 6, y: middle + 4, class: "tick" + strong + faded }, row.end));
}
const HATCHED = ["start", "restore", "save", "idle", "wait"];
