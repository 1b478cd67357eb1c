// Commands and code break into lines where they are longer than the page; what follows stands further in. Text in columns does not.
const command = /^\s*(#|\$|[A-Z_]+=|(python|recsys-lab|make|pip|docker|git|sbatch|srun|kubectl|sky|eval|torchrun|export|from|import)\s)/;
const columns = /\S {2,}\S|─{4}/;
const remark = / {2,}#.*$/; // behind a line of code
const FURTHER_IN = 4; // letters

// The words of a line, none of them broken behind the hyphens of an option.
function whole(line) {
  return line.split(/(\s+)/).map((word) => {
    if (!/^-\S{1,24}$/.test(word)) return word;
    const option = document.createElement("span");
    option.className = "option";
    option.textContent = word;
    return option;
  });
}

for (const code of document.querySelectorAll("pre > code")) {
  if (code.querySelector("span, a")) continue; // coloured code
  const lines = code.textContent.replace(/\n$/, "").split("\n");
  const continued = lines.map((_, at) => (lines[at - 1] ?? "").endsWith("\\"));
  const ours = lines.map((line, at) => command.test(line) || continued[at]);
  const output = lines.filter((_, at) => !ours[at]);
  const aligned = output.some((line) => columns.test(line.replace(remark, "")));
  code.replaceChildren(
    ...lines.map((line, at) => {
      const part = document.createElement("span");
      part.className = ours[at] || !aligned ? "line wraps" : "line";
      part.style.setProperty("--in", `${line.search(/\S|$/) + (continued[at] ? 0 : FURTHER_IN)}ch`);
      const [behind] = aligned && !ours[at] ? [] : (line.match(remark) ?? []);
      const words = document.createElement("span");
      words.className = "remark";
      words.textContent = behind?.trimStart() ?? "";
      part.append(...whole(behind ? line.slice(0, -words.textContent.length) : line), ...(behind ? [words] : []), "\n");
      return part;
    }),
  );
  if (aligned) code.dataset.columns = Math.max(...output.map((line) => line.length));
}

// Text in columns is as small as its longest line needs, on a phone and in a list too.
const WIDTH_OF_LETTER = 0.605;
const LEAST = matchMedia("(max-width: 600px)").matches ? 5.5 : 10; // pixels
function fit() {
  for (const code of document.querySelectorAll("pre > code[data-columns]")) {
    code.style.removeProperty("--fit");
    const style = getComputedStyle(code);
    const width = code.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const size = width / code.dataset.columns / WIDTH_OF_LETTER;
    if (size < parseFloat(style.fontSize)) code.style.setProperty("--fit", `${Math.max(size, LEAST)}px`); // then it scrolls
  }
}
fit();
addEventListener("resize", fit);

// A drawing opens alone, where a phone can zoom in.
for (const picture of document.querySelectorAll("article :is(p, picture) > img")) {
  const whole = picture.closest("picture") ?? picture;
  if (whole.closest("a")) continue;
  const link = document.createElement("a");
  link.href = picture.currentSrc || picture.src;
  whole.replaceWith(link);
  link.append(whole);
}

// On a phone a row with many columns becomes a list, each cell behind its column's name (site.css).
const MANY = 3;
for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
  if (heads.length < MANY) continue;
  table.dataset.stacked = "";
  for (const row of table.querySelectorAll("tbody tr")) {
    [...row.cells].forEach((cell, at) => {
      cell.dataset.column = heads[at] ?? "";
      if (!cell.childNodes.length) return;
      const whole = document.createElement("span"); // one item of the cell's grid, code and bold words among it
      whole.append(...cell.childNodes);
      cell.append(whole);
    });
  }
}
