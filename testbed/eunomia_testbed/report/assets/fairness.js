// Part 4. data: count, above (apps above 1), final [app, rho], worst first (of many apps the worst), distribution [rho,
// share], lines [{app, points [seconds, rho, slots]}].
function drawFairness(parent, data) {
  const grid = html("div", { class: "grid" });
  parent.append(grid);
  if (data.count) {
    const place = html("div");
    grid.append(place);
    drawDistribution(place, data);
    policyKey(place);
  }
  if (data.lines.length) drawRhoOverTime(grid, data.lines);
}

function drawDistribution(parent, { count, above, kind, final }) {
  const curves = () => compared().map((at) => ({ at, points: (viewOf("fairness", at) || { distribution: [] }).distribution })).filter((each) => each.points.length);
  const sorted = [...final].sort((a, b) => a[1] - b[1]);
  const named = count <= 8;
  const worstNamed = named ? 0 : 3;
  const ends = () => curves().flatMap(({ points }) => [points[0][0], points[points.length - 1][0]]);
  const log = () => Math.max(...ends(), 1) > 10 * Math.max(Math.min(...ends(), 1), 0.01);
  const domain = () => {
    if (log()) return [Math.max(Math.min(...ends(), 0.9) / 1.2, 0.01), Math.max(...ends(), 1.1) * 1.3];
    const [low, high] = around(ends(), [0.9, 1.1], 0.12);
    return [Math.max(low, 0), high];
  };
  const shareAt = (at) => (count - final.length + at + 1) / count; // the apps that are not here are below
  new Chart(parent, {
    title: `${kind} at the end: share of apps at or below`,
    describe: `${count} apps, ${above} above 1; worst ${final[0][0]} with ${number(final[0][1], 2)}`,
    height: 290,
    margin: { right: 24, top: 16 },
    x: () => ({ domain: domain(), label: log() ? `${kind}, logarithmic` : kind, format: tick, log: log(), ticks: log() ? logTicks : null }),
    y: () => ({ label: "apps", domain: [0, 1.04], format: (value) => number(100 * value) + " %" }),
    draw: (chart) => {
      shadeAboveOne(chart, "across");
      const all = curves();
      all.sort((a, b) => (a.at === chosen.run) - (b.at === chosen.run)).forEach(({ at, points }) => chart.policyLine([...stairsOf(points, chart.x.domain[0]), [chart.x.domain[1], 1]], at));
      all.forEach(({ at, points }) => at !== chosen.run && markCurve(chart, at, points, (value, share) => [`${number(100 * share, 1)} % of apps at or below ρ ${number(value, 3)}`]));
      const dots = [];
      sorted.forEach(([app, rho], at) => {
        const [x, y] = [chart.x(Math.max(rho, chart.x.domain[0])), chart.y(shareAt(at))];
        const faded = isFaded(app) ? " faded" : "";
        const worst = at >= sorted.length - worstNamed;
        const radius = chosen.app === app ? 7 : named ? 6 : worst ? 4.5 : 2.6;
        chart.plot.append(svg("circle", { cx: x, cy: y, r: radius, fill: look(app).hue, class: "dot" + faded }));
        dots.push({ x, y, r: radius, faded, text: named || worst ? `${shorten(app, 24)} ${number(rho, 2)}` : null });
        chart.mark({ x, y, app, text: [app, `ρ ${number(rho, 3)}`, `${count - final.length + at + 1} of ${count} apps at or below`] });
      });
      placeLabels(chart, [...dots.filter((each) => each.text).reverse(), ...curveLabels(chart, all)], { dots, lines: curveBoxes(chart, all) });
    },
  });
}

function drawRhoOverTime(parent, lines) {
  const values = lines.flatMap((line) => line.points.map((point) => point[1])).filter((value) => value !== null);
  const { low, high, wide } = spread([...values, 1]);
  const log = wide || high > 8;
  const named = lines.length <= 8;
  new Chart(parent, {
    title: "ρ over time",
    describe: `${lines.length} apps`,
    height: 270,
    margin: { right: named ? 108 : 14, top: 16 },
    time: () => true,
    y: () => ({ label: "ρ", domain: log ? [Math.min(low, 0.5) / 1.1, high * 1.1] : around(values, [0.9, 1.1]), log, format: tick }),
    draw: (chart) => {
      shadeAboveOne(chart, "up");
      lines.forEach(({ app, points }) => {
        chart.line(log ? points.map((point) => [point[0], point[1] > 0 ? point[1] : null]) : points, app);
        points.filter((point) => point[1] !== null && (!log || point[1] > 0)).forEach(([time, rho, slots]) => {
          const held = slots === null ? null : `${slots} slots held`;
          if (!isFaded(app)) chart.mark({ x: chart.x(time), y: chart.y(rho), app, text: [app, `ρ ${number(rho, 3)} at ${seconds(time, 1)}`, held] });
        });
      });
      const last = ({ points }) => points.findLast((point) => point[1] !== null);
      if (named) chart.endLabels(lines.filter(last).map((line) => ({ app: line.app, y: last(line)[1], text: line.app })));
    },
  });
}

// Above 1 an app is slower than it would be with an equal share of its own.
function shadeAboveOne(chart, direction) {
  const { left, right, top, bottom } = chart.area;
  if (direction === "across") {
    const x = Math.max(chart.x(1), left);
    chart.back.append(
      svg("rect", { x, y: top, width: Math.max(right - x, 0), height: bottom - top, class: "unfair" }),
      svg("line", { x1: x, x2: x, y1: top, y2: bottom, class: "one" }),
      svg("text", { x: right - x < 180 ? x - 5 : x + 5, y: bottom - 6, class: right - x < 180 ? "label end" : "label" }, "slower than on its own share →"));
  } else {
    const y = Math.min(chart.y(1), bottom);
    chart.back.append(
      svg("rect", { x: left, y: top, width: right - left, height: Math.max(y - top, 0), class: "unfair" }),
      svg("line", { x1: left, x2: right, y1: y, y2: y, class: "one" }));
  }
}
