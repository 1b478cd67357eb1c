// decide.html: filters, charts as charts.js has them, and a table that is sorted by a click on a column.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const AXES = ["cluster", "sharder", "precision", "optimizer"];
const PAID = data.rows.some(row => row.usd_per_1e9 !== null);
const COST = PAID ? "usd_per_1e9" : "device_hours_per_1e9";
const COST_WORDS = PAID ? "dollars per 1e9 samples" : "device-hours per 1e9 samples";
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "pentagon"];
const unique = values => [...new Set(values)];
const all = Object.fromEntries(AXES.map(axis => [axis, unique(data.rows.map(row => row[axis]))]));
const profiles = unique(data.rows.filter(row => row.ms !== null).map(row => row.profile));
const chosen = Object.fromEntries(AXES.map(axis => [axis, new Set(all[axis])]));
let profile = data.winner.row ? data.winner.row.profile : profiles[0];
let order = { key: COST, down: false };
const hasCost = row => row[COST] !== null;
const nameOf = row => AXES.map(axis => row[axis]).join(" ");
const figure = (value, digits = 2) => value === null || value === undefined ? "not known" : value.toFixed(digits);
const span = pair => pair ? `${figure(pair[0])} to ${figure(pair[1])}` : "not known";

// Of tables larger than memory, as rows.py says it.
const PLACES = { host: "in host memory", host_cached: "in host memory", disk_cached: "on disk" };
function storesOf(row) {
  const numbers = {};
  for (const [kind, number] of Object.entries(row.stores)) numbers[PLACES[kind]] = (numbers[PLACES[kind]] || 0) + number;
  return Object.entries(numbers).map(([place, number]) => `${number} table${number === 1 ? "" : "s"} ${place}`).join(", ");
}

function element(tag, words = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = words;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function shown() {
  return data.rows.filter(row => (row.profile === profile || row.ms === null) && AXES.every(axis => chosen[axis].has(row[axis])));
}

function costSpan(row) {
  return row.ms_interval && hasCost(row) ? row.ms_interval.map(ms => row[COST] * ms / row.ms) : null;
}

function drawScatter() {
  const rows = shown().filter(row => row.ms !== null && hasCost(row));
  const narrow = window.innerWidth < 700;
  const traces = all.sharder.filter(sharder => rows.some(row => row.sharder === sharder)).map(sharder => {
    const own = rows.filter(row => row.sharder === sharder), spans = own.map(costSpan);
    return {
      type: "scatter", mode: "markers", name: sharder, x: own.map(row => row.ms), y: own.map(row => row[COST]), customdata: own.map(nameOf),
      text: own.map(row => `<b>${row.sharder}</b> on ${row.cluster}<br>${row.precision}, ${row.optimizer}<br>${figure(row.ms)} ms `
        + `(${span(row.ms_interval)})<br>${figure(row[COST])} ${COST_WORDS}<br>${figure(row.memory_gb, 1)} of ${row.memory_there_gb} GB`
        + (storesOf(row) ? `, ${storesOf(row)}` : "")
        + `<br>bound by ${row.bound}` + (row.price ? `<br>${figure(row.price.usd_per_device_hour)} $ a device-hour (${row.price.origin})` : "")),
      hovertemplate: "%{text}<extra></extra>",
      error_y: { type: "data", symmetric: false, thickness: 0.6, width: 0, color: "rgba(128,128,128,0.35)",
        array: own.map((row, i) => spans[i] ? spans[i][1] - row[COST] : 0), arrayminus: own.map((row, i) => spans[i] ? row[COST] - spans[i][0] : 0) },
      marker: { color: COLOURS[all.sharder.indexOf(sharder) % COLOURS.length], size: own.map(row => row.pareto ? 16 : 9),
        symbol: own.map(row => row.pareto ? "star" : SYMBOLS[all.cluster.indexOf(row.cluster) % SYMBOLS.length]) },
    };
  });
  Plotly.react("scatter", traces, themed({
    xaxis: { title: { text: "ms an iteration" }, rangemode: "tozero" }, yaxis: { title: { text: COST_WORDS }, rangemode: "tozero" },
    legend: narrow ? { orientation: "h", y: -0.22 } : {}, hovermode: "closest",
  }), OPTIONS);
}

function drawPhases() {
  const pair = ["left", "right"].map(id => shown().find(row => row.ms !== null && nameOf(row) === document.getElementById(id).value)).filter(Boolean);
  const phases = unique(pair.flatMap(row => Object.keys(row.phases_ms)));
  const labels = pair.map((row, i) => `${i ? "second" : "first"}: ${figure(row.ms)} ms`);
  const traces = phases.map((phase, i) => ({
    type: "bar", name: phase.replaceAll("_", " "), x: labels, y: pair.map(row => row.phases_ms[phase] || 0),
    hovertemplate: "%{y:.3f} ms<extra>%{fullData.name}</extra>", marker: { color: COLOURS[i % COLOURS.length] },
  }));
  Plotly.react("phases", traces, themed({ barmode: "stack", yaxis: { title: { text: "ms" } }, legend: { orientation: "h", y: -0.15 } }), OPTIONS);
}

function drawTornado() {
  const changes = data.sensitivity.filter(change => change.fits).slice().reverse();
  Plotly.react("tornado", [{
    type: "bar", orientation: "h", y: changes.map(change => change.name), x: changes.map(change => 100 * change.time_change),
    customdata: changes.map(change => `${change.phase} ${figure(change.phase_ms[0])} to ${figure(change.phase_ms[1])} ms`),
    hovertemplate: "%{y}: %{x:+.1f} % time a sample<br>%{customdata}<extra></extra>",
    marker: { color: changes.map(change => change.time_change < 0 ? COLOURS[2] : COLOURS[5]) },
  }], themed({ xaxis: { title: { text: "% time a sample" } } }), OPTIONS);
}

const COLUMNS = [
  ["cluster", "cluster"], ["sharder", "sharder"], ["precision", "precision"], ["optimizer", "optimizer"], ["ms", "ms"],
  ["ms_interval", "90 % ms"], ["samples_per_second", "samples/s"], [COST, PAID ? "$ per 1e9" : "device-hours per 1e9"], ["memory_gb", "GB"],
  ...(data.rows.some(storesOf) ? [["stores", "larger than memory"]] : []),
  ["exposed_ms", "exposed ms"], ["bound", "bound by"], ["pareto", "Pareto"], ["robust", "under every profile"], ["fix", "what fits"],
];

function cell(row, key) {
  const value = row[key];
  if (key === "ms_interval") return row.ms === null ? "" : span(value);
  if (key === COST && PAID && value === null) return row.ms === null ? "" : "no price";
  if (key === "stores") return storesOf(row);
  if (key === "fix") return row.ms === null ? (row.fix || row.why_not || "") : "";
  if (typeof value === "boolean") return value ? "yes" : "";
  if (key === "samples_per_second") return value === null ? "" : Math.round(value).toLocaleString("en");
  return typeof value === "number" ? figure(value) : value === null ? "" : value;
}

function drawTable() {
  const at = row => {
    if (order.key === "stores") return storesOf(row);
    return order.key === "ms_interval" ? (row.ms_interval ? row.ms_interval[0] : null) : row[order.key];
  };
  const rows = shown().slice().sort((a, b) => {
    const [left, right] = [at(a), at(b)];
    if (left === null || right === null) return (left === null) - (right === null);
    return (left > right ? 1 : left < right ? -1 : 0) * (order.down ? -1 : 1);
  });
  const table = document.getElementById("rows"), head = element("tr"), top = element("thead"), body = element("tbody");
  for (const [key, words] of COLUMNS) {
    const made = element("th", words + (order.key === key ? (order.down ? " ▾" : " ▴") : ""), { "data-key": key, title: "sort" });
    made.onclick = () => { order = { key, down: order.key === key && !order.down }; drawTable(); };
    head.append(made);
  }
  for (const row of rows) {
    const line = element("tr", "", row.pareto ? { class: "pareto", title: row.command } : { title: row.command });
    for (const [key] of COLUMNS) line.append(element("td", cell(row, key), typeof row[key] === "number" || key === "ms_interval" ? { class: "right" } : {}));
    body.append(line);
  }
  top.append(head);
  table.replaceChildren(top, body);
  document.getElementById("count").textContent = `${rows.length} rows, profile ${profile}. A click on a column sorts.`;
}

function fillChoices() {
  const names = shown().filter(row => row.ms !== null)
    .sort((a, b) => hasCost(a) && hasCost(b) ? a[COST] - b[COST] : hasCost(b) - hasCost(a)).map(nameOf);
  ["left", "right"].forEach((id, place) => {
    const select = document.getElementById(id), before = select.value;
    select.replaceChildren(...names.map(name => element("option", name, { value: name })));
    select.value = names.includes(before) ? before : names[Math.min(place, names.length - 1)] || "";
    select.onchange = drawPhases;
  });
}

function draw() {
  fillChoices();
  drawScatter();
  drawPhases();
  drawTable();
}

function fieldset(words) {
  const made = element("fieldset");
  made.append(element("legend", words));
  document.getElementById("filters").append(made);
  return made;
}

for (const axis of AXES) {
  const box = fieldset(axis);
  for (const value of all[axis]) {
    const label = element("label"), input = element("input", "", { type: "checkbox", "data-axis": axis, value });
    input.checked = true;
    input.onchange = () => { chosen[axis][input.checked ? "add" : "delete"](value); draw(); };
    label.append(input, ` ${value}`);
    box.append(label);
  }
}
const ofProfile = element("select", "", { id: "profile" });
ofProfile.append(...profiles.map(name => element("option", name, { value: name })));
ofProfile.value = profile;
ofProfile.onchange = () => { profile = ofProfile.value; draw(); };
fieldset("software profile").append(ofProfile);
plotlyReady.then(() => {
  draw();
  drawTornado();
  let next = 0;
  document.getElementById("scatter").on("plotly_click", event => {
    const select = document.getElementById(next ? "right" : "left");
    next = 1 - next;
    select.value = event.points[0].customdata;
    drawPhases();
  });
});
