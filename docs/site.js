// Commands break into lines where they are longer than the page. Text in columns, with spaces side by side, does not.
const command = /^\s*(#|\$|[A-Z_]+=|python|recsys-lab|make|pip|docker|git|sbatch|kubectl|torchrun|export|from |import )/;
for (const block of document.querySelectorAll("pre")) {
  const text = block.textContent;
  if (command.test(text) || !/\S {2,}\S/.test(text)) block.classList.add("wraps");
}
