// Chooses the colours of "Who held what" as a reader does, and writes what it saw into the page as JSON.
const found = { errors: window.errors, ways: {} };
const held = () => [...document.querySelectorAll("#held > .view")].find((view) => !view.hidden);
const frame = () => held().querySelector("svg[role=img]");
const buttons = () => [...held().querySelectorAll(".switch button")];
const seen = () => ({
  pressed: buttons().filter((each) => each.getAttribute("aria-pressed") === "true").map((each) => each.textContent),
  names: [...held().querySelectorAll(".groups button, .groups span:not(.swatch)")].map((each) => each.textContent),
  colours: [...new Set([...frame().querySelectorAll("rect.bar.run, path.cell")].map((bar) => bar.getAttribute("fill") || bar.getAttribute("style")))],
  bars: frame().querySelectorAll("rect.bar.run, path.cell").length,
  faded: frame().querySelectorAll("rect.bar.faded, path.cell.faded").length,
  labels: [...frame().querySelectorAll("text.inside")].map((each) => each.textContent),
  inks: [...new Set([...frame().querySelectorAll("text.inside")].map((each) => getComputedStyle(each).fill))],
  address: location.hash,
});
found.opened = seen();
for (const name of buttons().map((each) => each.textContent)) {
  const button = buttons().find((each) => each.textContent === name);
  button.focus();
  button.click(); // what Enter and Space do to a button that has the focus
  found.ways[name] = { ...seen(), focus: document.activeElement.textContent };
}
const group = held().querySelector(".groups button");
if (group) group.click();
found.alone = seen();
const box = frame().getBoundingClientRect();
frame().focus();
for (let step = 0; step < 400; step += 1) {
  frame().dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, key: "ArrowRight" }));
  const tip = document.getElementById("tip").innerText;
  if (/run for|slots in use/.test(tip) && /alone|most by/.test(tip)) { found.tip = tip; break; }
}
document.body.dispatchEvent(new KeyboardEvent("keydown", { bubbles: true, key: "Escape" }));
found.reset = seen();
found.broken = document.querySelectorAll('[d*="NaN"], [x*="NaN"], [width*="-"], [fill*="undefined"], [style*="undefined"]').length;
const result = document.createElement("pre");
result.id = "result";
result.textContent = JSON.stringify(found);
document.body.append(result);
