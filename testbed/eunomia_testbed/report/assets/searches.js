// Part 7. data: panels [{app, metric, mode, curves [{job, best, state, params, points [seconds, step, value, paused]}],
// rungs [job, rung, iterations, seconds, metric, verdict], best [slot seconds, value, job]}].
let curvesByTime = true;

function drawSearches(parent, data) {
  const switcher = html("div", { class: "switch", role: "group", "aria-label": "Across" });
  const grid = html("div", { class: "grid" });
  const buttons = [["by time, with pauses dashed", true], ["by iteration", false]].map(([text, byTime]) =>
    html("button", { onclick: () => { curvesByTime = byTime; choose({}); } }, text));
  switcher.append(...buttons);
  onChange(() => buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(curvesByTime === (at === 0)))));
  parent.append(switcher, html("p", { class: "key" }, html("span", {}, "● promoted or done"), html("span", {}, "○ paused at a rung"),
    html("span", {}, "✕ stopped"), html("span", {}, html("b", {}, "━"), " best trial")), grid);
  data.panels.forEach((panel) => drawCurves(grid, panel));
  const known = data.panels.filter((panel) => panel.best.length); // no value was a number: no best one
  const metrics = [...new Set(known.map((panel) => panel.metric))];
  metrics.forEach((metric) => drawBest(grid, metric, known.filter((panel) => panel.metric === metric)));
}

function drawCurves(parent, panel) {
  const points = panel.curves.flatMap((curve) => curve.points);
  const values = points.map((point) => point[2]);
  const steps = points.reduce((most, point) => Math.max(most, point[1]), 1);
  const best = panel.curves.find((curve) => curve.best);
  new Chart(parent, {
    title: `${panel.app}: ${panel.metric}, ${panel.curves.length === 1 ? "1 job" : panel.curves.length + " trials"}`,
    describe: best ? `best trial ${best.job}` : "",
    height: 230,
    app: panel.app,
    margin: { top: 16 },
    time: () => curvesByTime,
    x: () => ({ domain: [0, steps * 1.03], label: "iteration", format: tick }),
    y: () => ({ label: panel.metric, ...metricAxis(values) }),
    draw: (chart) => {
      if (!curvesByTime) new Set(panel.rungs.map((rung) => rung[2])).forEach((at) =>
        chart.back.append(svg("line", { x1: chart.x(at), x2: chart.x(at), y1: chart.area.top, y2: chart.area.bottom, class: "rung" })));
      [...panel.curves].reverse().forEach((curve) => drawCurve(chart, panel, curve));
      panel.rungs.forEach((rung) => drawRung(chart, panel, rung));
    },
  });
}

// An axis of a metric: logarithmic where its values, all above 0, lie far apart, as those of a loss do.
function metricAxis(values) {
  const known = values.filter((value) => value !== null);
  const { low, high, wide } = spread(known);
  if (wide && known.every((value) => value > 0)) return { log: true, domain: [low / 1.1, high * 1.1], format: tick };
  return { domain: around(known), format: tick };
}

function drawCurve(chart, panel, curve) {
  const at = (point) => [curvesByTime ? point[0] : point[1], point[2]];
  const known = curve.points.filter((point) => point[2] !== null && at(point)[0] !== null);
  const pieces = [[]];
  for (const point of known) {
    const before = pieces[pieces.length - 1];
    if (point[3] && curvesByTime && before.length) {
      chart.line([at(before[before.length - 1]), at(point)], panel.app, { "stroke-dasharray": "1 3", "stroke-width": 1, opacity: 0.7 });
      pieces.push([]);
    }
    pieces[pieces.length - 1].push(point);
  }
  const weight = curve.best ? { "stroke-width": 3 } : { "stroke-width": 1.2, opacity: 0.75 };
  pieces.forEach((piece) => {
    if (piece.length > 1) chart.line(piece.map(at), panel.app, weight);
    else piece.forEach((point) => chart.dot(...at(point), panel.app, 2.2)); // a line of one point would not show
  });
  for (const point of known) {
    const [x, value] = at(point);
    const lines = [`${curve.job}${curve.best ? ", the best" : ""}`, `${panel.metric} ${number(value, 4)} at iteration ${number(point[1])}`, `${seconds(point[0])}`, curve.params, curve.state && `ended as: ${curve.state}`];
    chart.mark({ x: chart.x(x), y: chart.y(value), app: panel.app, text: lines });
  }
}

function drawRung(chart, panel, [job, rung, iterations, time, metric, verdict]) {
  const x = curvesByTime ? time : iterations;
  if (x === null || metric === null) return;
  const place = { cx: chart.x(x), cy: chart.y(metric), r: 3.4, fill: verdict === "paused" ? "var(--paper)" : look(panel.app).hue, stroke: look(panel.app).hue };
  const faded = isFaded(panel.app) ? " faded" : "";
  if (verdict === "stopped") chart.plot.append(svg("text", { x: place.cx, y: place.cy + 4, class: "stop middle" + faded }, "✕"));
  else chart.plot.append(svg("circle", { ...place, class: "rungmark" + faded }));
  chart.mark({ x: place.cx, y: place.cy, app: panel.app, text: [job, `rung ${rung} at iteration ${number(iterations)}`, `best so far ${number(metric, 4)}`, verdict] });
}

function drawBest(parent, metric, panels) {
  const values = panels.flatMap((panel) => panel.best.map((point) => point[1]));
  const spent = panels.flatMap((panel) => panel.best.map((point) => point[0]));
  const most = Math.max(...panels.flatMap((panel) => panel.best.map((point) => point[0])), 1);
  new Chart(parent, {
    title: `Best ${metric} so far, by slot time spent`,
    describe: `${panels.length} apps`,
    height: 230,
    wide: true,
    margin: { top: 16, right: 108 },
    x: () => ({ label: "slot seconds of the app", format: tick, ...(spread(spent).wide ? zeroLog(spent, 1) : { domain: [0, most] }) }),
    y: () => ({ label: metric, ...metricAxis(values) }),
    draw: (chart) => {
      panels.forEach(({ app, best }) => {
        const stairs = best.flatMap((point, at) => (at ? [[point[0], best[at - 1][1]], point] : [point]));
        chart.line(stairs, app, { "stroke-width": 2 });
        best.forEach(([spent, value, job]) => chart.mark({ x: chart.x(spent), y: chart.y(value), app, text: [job, `${metric} ${number(value, 4)}`, `after ${number(spent, 1)} slot seconds`] }));
      });
      chart.endLabels(panels.map(({ app, best }) => ({ app, y: best[best.length - 1][1], text: app })));
    },
  });
}
