// Commands break into lines where they are longer than the page. Text in columns, with spaces side by side, does not.
const command = /^\s*(#|\$|[A-Z_]+=|python|recsys-lab|make|pip|docker|git|sbatch|kubectl|torchrun|export|from |import )/;
const columns = /\S {2,}\S|^ {3,}\S|─{4}/;

for (const code of document.querySelectorAll("pre > code")) {
  const lines = code.textContent.replace(/\n$/, "").split("\n");
  const output = lines.filter((line, at) => !command.test(line) && !(lines[at - 1] ?? "").endsWith("\\"));
  const aligned = output.some((line) => columns.test(line));
  if (code.querySelector("span, a") && aligned) continue; // coloured code, whose indents are columns
  code.replaceChildren(
    ...lines.map((line, at) => {
      const part = document.createElement("span");
      const ours = command.test(line) || (lines[at - 1] ?? "").endsWith("\\");
      part.className = ours || !aligned ? "line wraps" : "line";
      part.textContent = line + "\n";
      return part;
    }),
  );
}

// On a phone a row with many columns becomes a list, each cell behind its column's name (site.css).
const MANY = 4;
for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
  if (heads.length < MANY) continue;
  table.dataset.stacked = "";
  for (const row of table.querySelectorAll("tbody tr")) [...row.cells].forEach((cell, at) => (cell.dataset.column = heads[at] ?? ""));
}
