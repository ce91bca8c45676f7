// Part 8. data: payments [{plugin, timed, points [seconds or round, app, share paid, slots won, round]}].
function drawDecisions(parent, data) {
  data.payments.forEach((payments) => drawPayments(parent, payments));
}

function drawPayments(parent, { plugin, timed, points }) {
  const paid = points.map((point) => point[2]);
  const apps = run.apps.filter((app) => points.some((point) => point[1] === app));
  new Chart(parent, {
    title: `Hidden payments of ${plugin}: share 1 - c of what an app won and did not get`,
    describe: `${points.filter((point) => point[2] > 0).length} payments`,
    height: 190,
    margin: { top: 16 },
    time: () => timed,
    x: () => ({ domain: around(points.map((point) => point[0])), label: "round", format: tick }),
    y: () => ({ label: "1 - c", domain: [Math.min(0, ...paid) - 0.02, Math.max(...paid, 0.1) * 1.1], format: (value) => number(100 * value) + " %" }),
    draw: (chart) => points.forEach(([at, app, share, won, round]) => {
      const aside = apps.length <= 8 ? (apps.indexOf(app) - (apps.length - 1) / 2) * 5 : 0; // so that none hides another
      const [x, y] = [chart.x(at) + aside, chart.y(share)];
      const faded = isFaded(app) ? " faded" : "";
      chart.plot.append(
        svg("line", { x1: x, x2: x, y1: chart.y(0), y2: y, stroke: look(app).hue, class: "stem" + faded }),
        svg("circle", { cx: x, cy: y, r: 3 + Math.min(won || 0, 8), fill: look(app).hue, class: "dot" + faded }));
      const slots = won === null || won === undefined ? null : `won ${won} slots`;
      chart.mark({ x, y, app, text: [`${app}, round ${round}`, `c ${number(1 - share, 3)}, pays ${number(100 * share, 1)} %`, slots] });
    }),
  });
}
