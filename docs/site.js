// Commands and code break into lines where they are longer than the page; what follows stands further in. Text in columns does not.
const command = /^\s*(#|\$|[A-Z_]+=|(python|recsys-lab|make|pip|docker|git|sbatch|srun|kubectl|sky|eval|torchrun|export|from|import)\s)/;
const columns = /\S {2,}\S|─{4}/;
const remark = / {2,}#.*$/; // behind a line of code
const FURTHER_IN = 4; // letters
const BUTTON = 7; // letters that the button which copies hides
const BESIDE_BUTTON = 3; // lines that it stands on
const PHONE = matchMedia("(max-width: 600px)").matches;

// The words of code: none broken behind a hyphen, a long one behind its marks if anywhere. No short ending, as of a file, stands alone.
const SHORT = 24; // letters
const MARKS = /(?<=[,=])(?=\w|\[)|(?<=[/_])(?=\w{3})|(?<=\w\.)(?=\w{6})/;
function span(name, ...parts) {
  const made = document.createElement("span");
  made.className = name;
  made.append(...parts);
  return made;
}
function whole(line, long = SHORT) {
  const piece = (word) => (word.includes("-") && word.length <= long ? span("option", word) : word);
  return line.split(/(\s+)/).map((word) => {
    if (word.length <= long) return piece(word);
    if (word.startsWith("-") && word.length <= SHORT) return span("option", word);
    return span("long", ...word.split(MARKS).flatMap((one, at) => (at ? [document.createElement("wbr"), piece(one)] : [piece(one)])));
  });
}

// An output is as small as its longest line needs, on a phone and in a list too. Smaller than can be read, columns scroll and sentences wrap.
const WIDTH_OF_LETTER = 0.605;
// On a desk a block has one size: that in which no line is broken, where it can be read. Else all its remarks stand below their lines.
const LEAST = { columns: PHONE ? 5.5 : 10, sentences: PHONE ? 7.5 : 11, whole: PHONE ? Infinity : 11.5 }; // pixels
const columnsOf = (line, at) => line.length + (at < BESIDE_BUTTON ? BUTTON : 0); // what a line wants, beside the button too
function sizeFor(code, columns) { // pixels of a letter at which so many stand beside each other
  const style = getComputedStyle(code);
  return (code.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)) / columns / WIDTH_OF_LETTER;
}

const letters = (line, further) => `${line.search(/\S|$/) + further}ch`;
for (const code of document.querySelectorAll("pre > code")) {
  const text = code.textContent.trimEnd();
  // Where lines must be broken, a command that goes on in the next one becomes one line, which breaks where the page ends.
  const joined = !code.querySelector("span, a") && sizeFor(code, Math.max(...text.split("\n").map(columnsOf))) < LEAST.whole;
  const lines = (joined ? text.replaceAll(/ *\\\n\s*/g, " ") : text).split("\n");
  code.dataset.copy = text; // what the button copies
  const needs = lines.map(columnsOf);
  code.dataset.longest = Math.max(...needs);
  code.dataset.remarked = Math.max(0, ...needs.filter((_, at) => remark.test(lines[at])));
  if (code.querySelector("span, a")) { // coloured code: no mark of it goes over the end of a line
    const parts = code.innerHTML.trimEnd().split("\n");
    code.innerHTML = parts.map((part, at) => `<span class="line wraps" style="--in: ${letters(lines[at], FURTHER_IN)}">${part || "<br>"}</span>`).join("");
    continue;
  }
  const continued = lines.map((_, at) => (lines[at - 1] ?? "").endsWith("\\"));
  const ours = lines.map((line, at) => command.test(line) || continued[at]);
  const output = lines.filter((_, at) => !ours[at]);
  const aligned = output.some((line) => columns.test(line.replace(remark, "")));
  code.replaceChildren(
    ...lines.map((line, at) => {
      const part = document.createElement("span");
      part.className = ours[at] ? "line wraps" : aligned ? "line fits" : "line fits wraps";
      part.style.setProperty("--in", letters(line, continued[at] ? 0 : FURTHER_IN));
      const [behind] = aligned && !ours[at] ? [] : (line.match(remark) ?? []);
      const words = document.createElement("span");
      words.className = "remark";
      words.textContent = behind?.trimStart() ?? "";
      const before = behind ? line.slice(0, -words.textContent.length) : line;
      // On a phone a remark does not stand in a column: its spaces alone would fill a line.
      part.append(...whole(behind && PHONE ? `${before.trimEnd()}  ` : before), ...(behind ? [words] : []));
      if (!line) part.append(document.createElement("br"));
      return part;
    }),
  );
  if (!output.length) continue;
  code.dataset.columns = Math.max(...output.map((line) => line.length + (lines.indexOf(line) < BESIDE_BUTTON ? BUTTON : 0)));
  if (!aligned) code.dataset.sentences = "";
}
for (const code of document.querySelectorAll(".md-typeset :not(pre) > code")) {
  if (!code.children.length) code.replaceChildren(...whole(code.textContent, PHONE && code.closest("td") ? 12 : 24));
}

function fit() {
  for (const code of document.querySelectorAll("pre > code[data-longest]")) {
    code.style.removeProperty("--fit");
    delete code.dataset.below;
    const usual = parseFloat(getComputedStyle(code).fontSize);
    const whole = sizeFor(code, code.dataset.longest);
    if (whole >= LEAST.whole) {
      if (whole < usual) code.style.setProperty("--fit", `${whole}px`);
      continue;
    }
    if (!PHONE && sizeFor(code, code.dataset.remarked) < usual) code.dataset.below = "";
    if (!code.dataset.columns) continue;
    const size = sizeFor(code, code.dataset.columns);
    const sentences = "sentences" in code.dataset;
    if (size >= usual || (sentences && size < LEAST.sentences)) continue;
    code.style.setProperty("--fit", `${Math.max(size, LEAST.columns)}px`);
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

// On a desk a cell of figures, such as a range, stays on one line where the table then still fits.
const FIGURES = /^[-+~(\d](?:[-+\d.,;%\u2013()\s=]|to|in|and|ms|s|GB|MB){0,17}$/;
for (const table of PHONE ? [] : document.querySelectorAll(".md-typeset table:not([class])")) {
  const cells = [...table.querySelectorAll("td")].filter((cell) => FIGURES.test(cell.textContent));
  for (const cell of cells) cell.style.whiteSpace = "nowrap";
  if (table.scrollWidth <= table.clientWidth && table.offsetWidth <= table.closest("article").clientWidth) continue;
  for (const cell of cells) cell.style.removeProperty("white-space");
}

// On a phone a row with many columns becomes a list, each cell behind its column's name (site.css).
const MANY = 3;
for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
  if (heads[0] === "key" && ["value", "default"].includes(heads[2])) table.dataset.keys = "";
  if (heads.length < MANY) continue;
  table.dataset.stacked = "keys" in table.dataset ? "" : heads[0] && "named"; // whether the first column's name stands too
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
