// Part 2. data: method (how intervals were made), frontiers [[policy] by load], metrics [{label, kind, digits, better,
// rows [[figure, low, high] by policy], best [by policy]}], scatter [[mean JCT, low, high] by policy, [p90 of rho, low, high] by policy],
// kind (of rho), unit (of all times: s, min, h or d). low and high are null where nothing is known about chance.
function drawPolicies(parent, data) {
  const grid = html("div", { class: data.scatter ? "grid trade" : "grid" });
  parent.append(html("p", { class: "key" }, `${data.method} Whiskers are intervals; ● is the best figure.`), grid);
  if (data.scatter) drawTrade(grid, data);
  const small = html("div", { class: "metrics" });
  grid.append(small);
  data.metrics.forEach((metric) => drawMetric(small, metric, data.unit));
}

function drawMetric(parent, { label, kind, digits, better, rows, best }, name) {
  const unit = kind === "seconds" ? unitAxis(name) : null;
  const axis = (value, step) => (kind === "percent" ? tick(100 * value, 100 * step) + " %" : tick(value, step));
  const format = (value) => measured(value, kind, digits, name);
  const bars = run.policies.map((policy, at) => {
    const row = rows[at];
    const runAt = run.runs.findIndex((each) => each.policy === policy);
    if (!row) return { label: policy, parts: [{ value: 0, look: "bar" }], end: "unknown", run: runAt };
    const spread = row[1] === null ? null : `95 % interval ${format(row[1])} to ${format(row[2])}`;
    return {
      label: policy, parts: [{ value: row[0], look: best[at] ? "best" : "other" }], low: row[1], high: row[2], end: format(row[0]) + (best[at] ? " ●" : ""),
      strong: best[at], run: runAt, notes: [spread, kind === "seconds" ? seconds(row[0], 0) : null],
    };
  });
  drawBars(parent, { title: `${label}${better === "high" ? " (more is better)" : ""}`, rows: bars, format, axis, unit });
}

// Fairness against speed: to the left and below is better; a line joins those that no other beats in both.
function drawTrade(parent, data) {
  const { frontiers, scatter, kind } = data;
  const [times, rhos] = scatter;
  const shown = run.policies.map((policy, at) => ({ policy, time: times[at], rho: rhos[at] })).filter((each) => each.time && each.rho);
  if (!shown.length) return;
  const x = reach(shown.map((each) => each.time));
  const y = reach(shown.map((each) => each.rho), 1);
  const unit = unitAxis(data.unit);
  const time = (value) => measured(value, "seconds", 0, data.unit);
  new Chart(parent, {
    title: `90th percentile of ${kind} against mean JCT`,
    describe: `${shown.length} policies`,
    height: Math.max(330, 3 * (22 * shown.length + 62)),
    margin: { top: 18, right: 20 },
    x: () => ({ ...x, label: "mean JCT", format: x.log ? time : unit.format, ticks: x.log ? timeTicks : unit.round }),
    y: () => ({ ...y, format: tick, label: `90th percentile of ${kind}` }),
    draw: (chart) => {
      shadeAboveOne(chart, "up");
      chart.back.append(svg("text", { x: chart.area.left + 6, y: chart.area.bottom - 6, class: "label" }, "↙ faster and fairer"));
      frontiers.forEach((frontier) => {
        const edge = shown.filter((each) => frontier.includes(each.policy)).sort((a, b) => a.time[0] - b.time[0]);
        if (edge.length > 1) chart.back.append(svg("path", { d: "M" + edge.map((each) => `${chart.x(each.time[0])} ${chart.y(each.rho[0])}`).join("L"), class: "frontier" }));
      });
      const labels = [];
      shown.forEach((each) => drawTraded(chart, each, labels, kind, time));
      placeLabels(chart, labels);
    },
  });
}

// An axis that holds the means and, as far as they do not dwarf these, the intervals; logarithmic where means lie far apart.
function reach(pairs, include) {
  const means = [...pairs.map(([mean]) => mean), ...(include ? [include] : [])];
  const [low, high] = [Math.min(...means), Math.max(...means)];
  const log = low > 0 && high > 8 * low;
  if (log) return { log, domain: [low / 1.5, high * 1.5] };
  const room = Math.max(high - low, 0.05 * high);
  const ends = pairs.flatMap(([mean, from, to]) => [Math.max(from ?? mean, low - room), Math.min(to ?? mean, high + room)]);
  const [from, to] = around(ends, means, 0.14);
  return { log, domain: [Math.max(from, 0), to] };
}

function drawTraded(chart, { policy, time, rho }, labels, kind, format) {
  const [x, y] = [chart.x(time[0]), chart.y(rho[0])];
  const least = (value) => Math.max(value, 1e-9);
  const across = (value) => Math.min(Math.max(chart.x(least(value)), chart.area.left), chart.area.right);
  const up = (value) => Math.min(Math.max(chart.y(least(value)), chart.area.top), chart.area.bottom);
  const bars = (time[1] === null ? "" : `M${across(time[1])} ${y}H${across(time[2])}`) + (rho[1] === null ? "" : `M${x} ${up(rho[1])}V${up(rho[2])}`);
  if (bars) chart.plot.append(svg("path", { d: bars, class: "whisker pale" }));
  chart.front.append(svg("circle", { cx: x, cy: y, r: 5, class: "point" }));
  labels.push({ x, y, text: policy, strong: false });
  const interval = ([, low, high], format) => (low === null ? "" : ` (${format(low)} to ${format(high)})`);
  const plain = (value) => number(value, 3);
  chart.mark({ x, y, run: run.runs.findIndex((each) => each.policy === policy), text: [policy, `mean JCT ${format(time[0])}${interval(time, format)}`, `90th percentile of ${kind} ${plain(rho[0])}${interval(rho, plain)}`] });
}

// Names next to their points, each in the first place where it hides no other.
function placeLabels(chart, labels) {
  const taken = labels.map(({ x, y }) => ({ left: x - 7, right: x + 7, top: y - 7, bottom: y + 7 }));
  const free = (box) => box.left >= chart.area.left && box.right <= chart.area.right + 16 && box.top >= 4 && box.bottom <= chart.area.bottom && !taken.some((each) => box.left < each.right && box.right > each.left && box.top < each.bottom && box.bottom > each.top);
  for (const { x, y, text, strong } of labels) {
    const width = text.length * (strong ? 7.2 : 6.6) + 4;
    const right = [4, -14, 20, -28, 34].map((dy) => ({ x: x + 11, y: y + dy, end: false }));
    const left = [4, -14, 20, -28, 34].map((dy) => ({ x: x - 11, y: y + dy, end: true }));
    const boxOf = (place) => ({ left: place.end ? place.x - width : place.x, right: place.end ? place.x : place.x + width, top: place.y - 11, bottom: place.y + 4 });
    const place = [...right, ...left].find((each) => free(boxOf(each))) || (x + width + 11 > chart.area.right ? left[0] : right[0]);
    taken.push(boxOf(place));
    chart.front.append(svg("text", { x: place.x, y: place.y, class: "name halo" + (place.end ? " end" : "") + (strong ? " strong" : "") }, text));
  }
}
