// Lays a report out as on paper, with its rules for print, and writes what is cut off into the page as JSON.
const found = { errors: window.errors };
const css = document.querySelector("head style").textContent;
const rules = css.slice(css.lastIndexOf("@media print {") + 14, css.lastIndexOf("}"));
const folded = document.querySelectorAll("details:not([open])").length;
dispatchEvent(new Event("beforeprint"));
document.head.append(Object.assign(document.createElement("style"), { textContent: rules + " html { width: 700px; }" }));
const shown = (selector) => [...document.querySelectorAll(selector)].filter((each) => !each.closest("[hidden]"));
const data = JSON.parse(document.getElementById("data").textContent);
const specs = Object.values(data.parts).flatMap(({ ofAll, views }) => (views[ofAll ? 0 : data.first] || { tables: [] }).tables);
found.folded = [folded, document.querySelectorAll("details:not([open])").length];
found.tables = shown(".scroll").map((scroll, at) => {
  const tables = [...scroll.querySelectorAll("table")];
  const heads = tables.map((table) => [...table.querySelectorAll("th")].map((head) => head.textContent));
  const cells = [...scroll.querySelectorAll("td, th")];
  return {
    title: specs[at].title,
    expected: [specs[at].rows.length, specs[at].columns.length],
    rows: [...new Set(tables.map((table) => table.querySelectorAll("tbody tr").length))],
    columns: heads[0].length + heads.slice(1).reduce((sum, each) => sum + each.length - 1, 0),
    firsts: [...new Set(heads.map((head) => head[0]))].length,
    parts: tables.length,
    wider: Math.max(...tables.map((table) => table.getBoundingClientRect().right)) > 701,
    cut: cells.filter((cell) => cell.scrollWidth > cell.clientWidth + 2).map((cell) => cell.textContent).slice(0, 3),
    scrolls: scroll.scrollHeight > scroll.clientHeight + 2 || !["visible"].includes(getComputedStyle(scroll).overflowY),
  };
});
found.names = [...document.querySelectorAll("#held .groups .paper")].map((each) => [each.textContent, getComputedStyle(each).display]);
dispatchEvent(new Event("afterprint"));
found.again = [document.querySelectorAll("details:not([open])").length, document.querySelectorAll("caption").length];
const result = document.createElement("pre");
result.id = "result";
result.textContent = JSON.stringify(found);
document.body.append(result);
