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
