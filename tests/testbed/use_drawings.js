// Looks at every drawing of a report, and writes into the page as JSON where names stand and which axes are logarithmic.
const found = { errors: window.errors, drawings: [] };
const meet = (one, other, slack) => one.x + slack < other.x + other.width && one.x + one.width > other.x + slack && one.y + slack < other.y + other.height && one.y + one.height > other.y + slack;
const look = (frame) => {
  const [, , width, height] = frame.getAttribute("viewBox").split(" ").map(Number);
  const names = [...frame.querySelectorAll("text.halo")].map((each) => ({ text: each.textContent, box: each.getBBox() }));
  const dots = [...frame.querySelectorAll("circle.dot, circle.point")].map((each) => each.getBBox());
  const across = names.map(({ text, box }) => [text, box]);
  return {
    part: frame.closest("section").id,
    title: (frame.closest("figure").querySelector("figcaption") || {}).textContent || "",
    axes: [...frame.querySelectorAll("text.label")].map((each) => each.textContent),
    ticks: [...frame.querySelectorAll("text.tick.end")].map((each) => each.textContent),
    area: frame.getBoundingClientRect().width * frame.getBoundingClientRect().height,
    names: names.map(({ text }) => text),
    dots: dots.length,
    onDots: across.filter(([, box]) => dots.some((dot) => meet(box, dot, 1))).map(([text]) => text),
    onNames: across.filter(([, box], at) => across.some(([, other], place) => place > at && meet(box, other, 1.5))).map(([text]) => text),
    cutOff: across.filter(([, box]) => box.x < -1 || box.y < -1 || box.x + box.width > width + 1 || box.y + box.height > height + 1).map(([text]) => text),
  };
};
document.querySelectorAll("details").forEach((each) => { each.open = true; });
const shown = () => [...document.querySelectorAll("svg[role=img]")].filter((each) => !each.closest("[hidden]"));
found.drawings = shown().map(look);
found.kinds = [...document.querySelectorAll("#policies .switch button")].map((button) => {
  button.click();
  const trade = document.querySelector("#policies svg[role=img]");
  return { label: button.textContent, pressed: button.getAttribute("aria-pressed"), points: trade.querySelectorAll("circle.front").length, line: trade.querySelectorAll("path.frontier").length, ...look(trade) };
});
const result = document.createElement("pre");
result.id = "result";
result.textContent = JSON.stringify(found);
document.body.append(result);
