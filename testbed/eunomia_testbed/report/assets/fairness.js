// Part 4. data: final [app, rho], worst first; lines [{app, points [seconds, rho, slots]}].
function drawFairness(parent, data) {
  const grid = html("div", { class: "grid" });
  parent.append(grid);
  if (data.final.length) drawDistribution(grid, data.final);
  if (data.lines.length) drawRhoOverTime(grid, data.lines);
}

function drawDistribution(parent, final) {
  const sorted = [...final].sort((a, b) => a[1] - b[1]);
  const named = sorted.length <= 8;
  new Chart(parent, {
    title: "ρ at the end: share of apps at or below",
    describe: `${sorted.length} apps; worst ${final[0][0]} with ${number(final[0][1], 2)}`,
    height: 270,
    margin: { right: 24, top: 16 },
    x: () => ({ domain: around(sorted.map(([, rho]) => rho), [0.9, 1.1], 0.12), label: "ρ", format: tick }),
    y: () => ({ domain: [0, 1.04], format: (value) => number(100 * value) + " %" }),
    draw: (chart) => {
      shadeAboveOne(chart, "across");
      let path = `M${chart.area.left} ${chart.y(0)}`;
      sorted.forEach(([, rho], at) => {
        path += `H${chart.x(rho)}V${chart.y((at + 1) / sorted.length)}`;
      });
      chart.plot.append(svg("path", { d: path + `H${chart.area.right}`, class: "line steps" }));
      sorted.forEach(([app, rho], at) => {
        const [x, y] = [chart.x(rho), chart.y((at + 1) / sorted.length)];
        const faded = isFaded(app) ? " faded" : "";
        chart.plot.append(svg("circle", { cx: x, cy: y, r: named ? 6 : 3.5, fill: look(app).hue, class: "dot" + faded }));
        const flip = x > (chart.area.left + chart.area.right) * 0.62;
        if (named) chart.front.append(svg("text", { x: x + (flip ? -10 : 10), y: y + (flip ? -6 : 16), class: (flip ? "name end" : "name") + faded }, `${shorten(app, 24)} ${number(rho, 2)}`));
        chart.mark({ x, y, app, text: [app, `ρ ${number(rho, 3)}`, `${at + 1} of ${sorted.length} apps at or below`] });
      });
    },
  });
}

function drawRhoOverTime(parent, lines) {
  const values = lines.flatMap((line) => line.points.map((point) => point[1])).filter((value) => value !== null);
  const log = Math.max(...values.slice(0, 20000), 1) > 8;
  const named = lines.length <= 8;
  new Chart(parent, {
    title: "ρ over time",
    describe: `${lines.length} apps`,
    height: 270,
    margin: { right: named ? 108 : 14, top: 16 },
    time: () => true,
    y: () => ({ domain: log ? [Math.max(Math.min(...values, 0.5), 0.01), Math.max(...values)] : around(values, [0.9, 1.1]), log, format: tick }),
    draw: (chart) => {
      shadeAboveOne(chart, "up");
      lines.forEach(({ app, points }) => {
        chart.line(points, app);
        points.filter((point) => point[1] !== null).forEach(([time, rho, slots]) => {
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
      svg("text", { x: x + 5, y: bottom - 6, class: "label" }, "slower than on its own share →"));
  } else {
    const y = Math.min(chart.y(1), bottom);
    chart.back.append(
      svg("rect", { x: left, y: top, width: right - left, height: Math.max(y - top, 0), class: "unfair" }),
      svg("line", { x1: left, x2: right, y1: y, y2: y, class: "one" }));
  }
}
