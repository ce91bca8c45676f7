// Part 6. data: slots, lines [{name, title, hint, points [seconds, level] or bands [seconds, mean, low, high] and width}],
// slotTime {useful, start, save, restore, idle, free} or {held, free}, waiting {reason, plugin, user: [name, words, hours]}.
const ACTIVITIES = [["useful", "useful"], ["held", "held"], ["start", "start"], ["save", "save"], ["restore", "restore"], ["idle", "held, idle"], ["free", "free"]];

const LEVEL_UNITS = { busy_gpus: "slots", waiting_jobs: "jobs", waiting_gpus: "slots", contention: "jobs per slot", efficiency: "jobs on one slot", blocking_index: "ratio" };

function drawCluster(parent, data) {
  const grid = html("div", { class: "grid" });
  parent.append(grid);
  data.lines.forEach((line) => drawLevel(grid, line, data.slots));
  policyKey(parent);
  const lower = html("div", { class: "grid" });
  parent.append(lower);
  if (data.slotTime) drawSlotTime(lower);
  drawWaiting(lower, data.waiting);
}

function lineOf(at, name) {
  const view = viewOf("cluster", at);
  return (view && view.lines.find((line) => line.name === name)) || null;
}

function drawLevel(parent, { name, title, hint }, slotCount) {
  const capacity = name === "busy_gpus" ? slotCount : name === "contention" || name === "efficiency" ? 1 : null;
  const lines = () => compared().map((at) => ({ at, line: lineOf(at, name) })).filter((each) => each.line);
  const levels = () => lines().flatMap(({ line }) => (line.bands || line.points).map((row) => row[row.length - 1]));
  const highest = () => Math.max(...lines().map(({ line }) => (line.bands || line.points).reduce((most, row) => Math.max(most, row[row.length - 1]), 0)), 1e-9);
  const labelled = compared().length > 1 && compared().length <= 4; // more names than that say nothing of their lines
  new Chart(parent, {
    title: hint ? `${title}: ${hint}` : title,
    describe: "over time",
    height: 224,
    margin: { top: 18, right: labelled ? 118 : 14, left: 56 },
    time: () => true,
    y: () => {
      const axis = { label: LEVEL_UNITS[name] || "", format: (value, step) => (value >= 10000 ? number(value / 1000) + " k" : tick(value, step)) };
      const whole = name === "busy_gpus" && capacity; // a part of a whole stays linear
      if (!whole && spread(levels()).wide) return { ...axis, ...zeroLog([...levels(), capacity || 0]) };
      return { ...axis, domain: [0, Math.max(highest(), capacity || 0) * 1.06] };
    },
    draw: (chart) => {
      if (capacity) chart.back.append(svg("line", { x1: chart.area.left, x2: chart.area.right, y1: chart.y(capacity), y2: chart.y(capacity), class: "one" }));
      const own = lineOf(chosen.run, name);
      if (own) drawFilled(chart, own);
      lines().sort((a, b) => (a.at === chosen.run) - (b.at === chosen.run)).forEach(({ at, line }) => {
        chart.policyLine(levelPoints(line), at);
        markLevel(chart, at, line, title);
      });
      if (labelled) chart.endLabels(lines().map(({ at, line }) => ({ y: lastShown(chart, line), text: run.runs[at].policy, strong: at === chosen.run })));
    },
  });
}

// Stairs of exact points, to the end of the page; buckets at their middles by their means.
function levelPoints(line) {
  if (line.bands) return line.bands.map(([time, mean]) => [time + line.width / 2, mean]);
  const stairs = line.points.flatMap((point, at) => (at ? [[point[0], line.points[at - 1][1]], point] : [[point[0], 0], point]));
  return stairs.length ? [...stairs, [run.span[1], stairs[stairs.length - 1][1]]] : stairs;
}

function lastShown(chart, line) {
  const until = (chosen.zoom || run.span)[1];
  const rows = line.bands || line.points;
  const [from] = chosen.zoom || run.span;
  const busy = rows.findLast((row) => row[0] <= until && row[1] > 0 && row[0] >= from);
  return Math.min((busy || rows.findLast((row) => row[0] <= until) || rows[0])[1], chart.y.domain[1]);
}

// The chosen run's line stands on a tint; where buckets were thinned, from their lowest to their highest.
function drawFilled(chart, line) {
  const points = levelPoints(line);
  if (!points.length) return;
  const at = ([time, level]) => `${chart.x(time).toFixed(1)} ${chart.y(level).toFixed(1)}`;
  const floor = chart.y(0);
  chart.plot.append(svg("path", { d: `M${chart.x(points[0][0])} ${floor}L${points.map(at).join("L")}L${chart.x(points[points.length - 1][0])} ${floor}Z`, class: "under" }));
  if (!line.bands) return;
  const middle = (row, value) => [row[0] + line.width / 2, value];
  const upper = line.bands.map((row) => at(middle(row, row[3])));
  const lower = [...line.bands].reverse().map((row) => at(middle(row, row[2])));
  chart.plot.append(svg("path", { d: `M${upper.join("L")}L${lower.join("L")}Z`, class: "under" }));
}

function markLevel(chart, at, line, title) {
  const rows = line.bands || line.points;
  const [from, to] = chosen.zoom || run.span;
  const seen = rows.filter((row) => row[0] >= from && row[0] <= to);
  const every = Math.max(1, Math.floor(seen.length / 240));
  seen.filter((_, place) => place % every === 0).forEach((row) => {
    const name = run.runs.length > 1 ? run.runs[at].name : title;
    const level = (value) => number(value, value % 1 ? 2 : 0);
    const spread = line.bands ? `mean ${level(row[1])}, from ${level(row[2])} to ${level(row[3])}` : level(row[1]);
    chart.mark({ x: chart.x(row[0] + (line.bands ? line.width / 2 : 0)), y: chart.y(row[1]), run: at, text: [name, spread, `at ${moment(row[0], 1)}`] });
  });
}

function drawSlotTime(parent) {
  const place = html("div", { class: "wide" });
  parent.append(place);
  let shown = null;
  onChange(() => {
    const runs = compared().filter((at) => (viewOf("cluster", at) || {}).slotTime);
    const name = runs.join() + "/" + chosen.run;
    if (name === shown || !runs.length) return;
    shown = name;
    const kinds = ACTIVITIES.filter(([kind]) => runs.some((at) => viewOf("cluster", at).slotTime[kind] > 0));
    const rows = runs.map((at) => {
      const spent = viewOf("cluster", at).slotTime;
      const parts = kinds.filter(([kind]) => spent[kind] > 0).map(([kind, text]) => ({ value: spent[kind], look: kind, text }));
      return { label: run.policies.length > 1 ? run.runs[at].policy : "all slots", parts, strong: run.policies.length > 1 && at === chosen.run, run: at, end: number(100 * (spent.useful ?? spent.held), 1) + " %" };
    });
    place.replaceChildren();
    const percent = (value) => number(100 * value, 1) + " %";
    drawBars(place, { title: "Slot time over the whole run", rows, format: percent, axis: (value) => number(100 * value) + " %", most: 1, wide: true }).redraw();
    place.append(html("p", { class: "key" }, ...kinds.map(([kind, text]) => keyItem(kind, text))));
  });
}

function drawWaiting(parent, waiting) {
  const titles = { reason: "Job-hours waited, by reason", plugin: "Job-hours waited, by the plugin that said so", user: "Job-hours waited, by user" };
  for (const [key, title] of Object.entries(titles)) {
    const rows = waiting[key];
    if (!rows.length || (key !== "reason" && rows.length < 2)) continue;
    const total = rows.reduce((sum, row) => sum + row[2], 0);
    const hours = (value) => (value >= 0.2 || !value ? `${number(value, value >= 100 ? 0 : 1)} h` : `${number(value * 60, 1)} min`);
    drawBars(parent, {
      title,
      rows: rows.map(([name, words, spent]) => ({ label: name.replaceAll("_", " "), parts: [{ value: spent, look: "other" }], end: `${hours(spent)}, ${number((100 * spent) / (total || 1), 0)} %`, notes: [words === name ? null : words] })),
      format: hours,
      axis: (value, step) => tick(value, step) + " h",
    });
  }
}
