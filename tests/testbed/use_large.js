// Looks at a report of a large cluster, and writes what it saw into the page as JSON.
const found = { errors: window.errors };
const held = document.querySelector("#held svg[role=img]");
found.levels = held.querySelectorAll("path.cell").length;
const box = held.getBoundingClientRect();
held.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: box.x + box.width / 2, clientY: box.y + 40 }));
found.cellTip = document.getElementById("tip").innerText;
const drawings = [...document.querySelectorAll("svg[role=img]")];
found.everyDrawing = drawings.length;
found.drawnWithContent = drawings.filter((each) => each.querySelectorAll("path, rect, circle").length > 2).length;
found.broken = document.querySelectorAll('[d*="NaN"], [x*="NaN"], [y*="NaN"], [cx*="NaN"], [cy*="NaN"], [width*="-"]').length;
const result = document.createElement("pre");
result.id = "result";
result.textContent = JSON.stringify(found);
document.body.append(result);
