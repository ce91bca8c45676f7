// Part 2. data: metrics [{label, kind, digits, better,
// rows [[figure, low, high] by policy], best [by policy]}], scatter {times [[mean JCT, low, high] by policy], kinds [{label, judges (whether
// the run is judged by it), rows [[p90 of rho, low, high] by policy], frontiers [[policy] by load]}]}, unit (of all times: s, min, h or d). low and high are null where nothing is known about chance.
function drawPolicies(parent, data) {
  const grid = html("div", { class: data.scatter ? "grid trade" : "grid" });
  const intervals = data.metrics.some(({ rows }) => rows.some((row) => row && row[1] !== null));
  parent.append(html("p", { class: "key" }, intervals ? "Whiskers are intervals; ● is the best figure that has one." : "No bar has an interval, so that no figure is marked as the best."), grid);
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

// Fairness against speed, by the kind of rho that the reader chooses: to the left and below is better; a line joins the
// policies that no other beats in both.
function drawTrade(parent, data) {
  const place = html("div");
  parent.append(place);
  const { times, kinds } = data.scatter;
  let kind = kinds.find((each) => each.judges) || kinds[0];
  const buttons = kinds.map((each) => html("button", { onclick: () => { kind = each; draw(); } }, each.label));
  const drawn = html("div");
  if (kinds.length > 1) place.append(html("div", { class: "switch", role: "group", "aria-label": "Fairness by" }, html("span", { class: "asks" }, "Fairness by "), ...buttons));
  place.append(drawn);
  const draw = () => {
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(kinds[at] === kind)));
    drawn.replaceChildren();
    drawFront(drawn, data, times, kind).redraw();
  };
  draw();
}

function drawFront(parent, data, times, { label, rows, frontiers }) {
  const shown = run.policies.map((policy, at) => ({ policy, time: times[at], rho: rows[at] })).filter((each) => each.time && each.rho);
  const x = reach(shown.map((each) => each.time));
  const y = reach(shown.map((each) => each.rho), 1);
  const unit = unitAxis(data.unit);
  const time = (value) => measured(value, "seconds", 0, data.unit);
  return new Chart(parent, {
    title: `90th percentile of ${label} against mean JCT`,
    describe: `${shown.length} policies; on the front: ${frontiers.map((each) => each.join(", ")).join("; ")}`,
    height: Math.max(330, 3 * (22 * shown.length + 62)),
    margin: { top: 18, right: 20 },
    x: () => ({ ...x, label: "mean JCT", format: x.log ? time : unit.format, ticks: x.log ? timeTicks : unit.round }),
    y: () => ({ ...y, format: tick, label: `90th percentile of ${label}` }),
    draw: (chart) => {
      shadeAboveOne(chart, "up");
      chart.back.append(svg("text", { x: chart.area.left + 6, y: chart.area.bottom - 6, class: "label" }, "↙ faster and fairer"));
      frontiers.forEach((frontier) => {
        const edge = shown.filter((each) => frontier.includes(each.policy)).sort((a, b) => a.time[0] - b.time[0]);
        if (edge.length > 1) chart.back.append(svg("path", { d: "M" + edge.map((each) => `${chart.x(each.time[0])} ${chart.y(each.rho[0])}`).join("L"), class: "frontier" }));
      });
      const drawn = shown.map((each) => drawTraded(chart, each, frontiers.some((frontier) => frontier.includes(each.policy)), label, time));
      placeLabels(chart, drawn, { lines: drawn.flatMap(({ lines }) => lines.flatMap(boxesAlong)) });
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

function drawTraded(chart, { policy, time, rho }, onFront, kind, format) {
  const [x, y] = [chart.x(time[0]), chart.y(rho[0])];
  const least = (value) => Math.max(value, 1e-9);
  const across = (value) => Math.min(Math.max(chart.x(least(value)), chart.area.left), chart.area.right);
  const up = (value) => Math.min(Math.max(chart.y(least(value)), chart.area.top), chart.area.bottom);
  const bars = (time[1] === null ? "" : `M${across(time[1])} ${y}H${across(time[2])}`) + (rho[1] === null ? "" : `M${x} ${up(rho[1])}V${up(rho[2])}`);
  if (bars) chart.plot.append(svg("path", { d: bars, class: "whisker pale" }));
  chart.front.append(svg("circle", { cx: x, cy: y, r: 5, class: onFront ? "point front" : "point" }));
  const interval = ([, low, high], format) => (low === null ? "" : ` (${format(low)} to ${format(high)})`);
  const plain = (value) => number(value, 3);
  chart.mark({ x, y, run: run.runs.findIndex((each) => each.policy === policy), text: [policy, `mean JCT ${format(time[0])}${interval(time, format)}`, `90th percentile of ${kind} ${plain(rho[0])}${interval(rho, plain)}`, onFront && "on the front: no policy beats it in both"] });
  const lines = [...(time[1] === null ? [] : [[[across(time[1]), y], [across(time[2]), y]]]), ...(rho[1] === null ? [] : [[[x, up(rho[1])], [x, up(rho[2])]]])];
  return { x, y, r: 6, text: policy, strong: onFront, lines };
}
