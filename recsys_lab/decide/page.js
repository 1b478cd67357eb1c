// decide.html: filters, charts as charts.js has them, and a table that is sorted by a click on a column.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const AXES = ["cluster", "sharder", "precision", "optimizer"];
const PAID = data.rows.some(row => row.usd_per_1e9 !== null);
const COST = PAID ? "usd_per_1e9" : "device_hours_per_1e9";
const COST_WORDS = PAID ? "dollars per 1e9 samples" : "device-hours per 1e9 samples";
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "pentagon"];
// An axis is logarithmic where its most is over so many times its least.
const FAR = 10;
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

// Figures and choices of a row, a line each.
function told(row) {
  return `<b>${row.sharder}</b> on ${row.cluster}<br>${row.precision}, ${row.optimizer}<br>${figure(row.ms)} ms `
    + `(${span(row.ms_interval)})<br>${figure(row[COST])} ${COST_WORDS}<br>${figure(row.memory_gb, 1)} of ${row.memory_there_gb} GB`
    + (storesOf(row) ? `, ${storesOf(row)}` : "") + `<br>bound by ${row.bound}`
    + (row.price ? `<br>${figure(row.price.usd_per_device_hour)} $ a device-hour (${row.price.origin})` : "");
}

const colourOf = row => COLOURS[all.sharder.indexOf(row.sharder) % COLOURS.length];
const pointsOf = rows => ({ type: "scatter", x: rows.map(row => row.ms), y: rows.map(row => row[COST]), customdata: rows.map(nameOf),
  hovertext: rows.map(told), hovertemplate: "%{hovertext}<extra></extra>" });

// Numbers of stars that lie on each other are one label.
function labelsOf(front) {
  const near = (a, b) => Math.abs(a.ms / b.ms - 1) < 0.03 && Math.abs(a[COST] / b[COST] - 1) < 0.03;
  const labels = [];
  front.forEach((row, i) => {
    const first = front.findIndex(other => near(row, other));
    labels[i] = "";
    labels[first] += (labels[first] ? ", " : "") + (i + 1);
  });
  return labels;
}

// Linear from zero, or logarithmic where the figures lie far apart.
function axisOf(words, values) {
  const far = values.length && Math.max(...values) > FAR * Math.min(...values);
  if (!far) return { title: { text: words }, type: "linear", rangemode: "tozero" };
  const powers = Array.from({ length: 24 }, (_, i) => 10 ** (i - 9)), ticks = powers.flatMap(power => [power, 2 * power, 5 * power]);
  return { title: { text: words }, type: "log", tickvals: ticks, ticktext: ticks.map(tick => Number(tick.toPrecision(1)).toLocaleString("en")) };
}

function drawScatter() {
  const rows = shown().filter(row => row.ms !== null && hasCost(row));
  const narrow = window.innerWidth < 700;
  const front = rows.filter(row => row.pareto).sort((a, b) => a.ms - b.ms || a[COST] - b[COST]), spans = front.map(costSpan);
  const traces = all.sharder.filter(sharder => rows.some(row => row.sharder === sharder)).map(sharder => {
    const own = rows.filter(row => row.sharder === sharder && !row.pareto), points = pointsOf(own);
    return {
      ...points, ...(own.length ? {} : { x: [null], y: [null] }), mode: "markers", name: sharder,
      marker: { color: COLOURS[all.sharder.indexOf(sharder) % COLOURS.length], size: 7, opacity: 0.7,
        symbol: own.length ? own.map(row => SYMBOLS[all.cluster.indexOf(row.cluster) % SYMBOLS.length]) : "circle" },
    };
  });
  traces.push({
    ...pointsOf(front), mode: "lines+markers+text", name: "Pareto-optimal", text: labelsOf(front), textposition: "top right",
    line: { color: "rgba(128,128,128,0.7)", width: 1, dash: "dot" }, cliponaxis: false,
    error_y: { type: "data", symmetric: false, thickness: 0.8, width: 3, color: "rgba(128,128,128,0.6)",
      array: front.map((row, i) => spans[i] ? spans[i][1] - row[COST] : 0), arrayminus: front.map((row, i) => spans[i] ? row[COST] - spans[i][0] : 0) },
    marker: { color: front.map(colourOf), size: 15, symbol: "star", line: { color: "rgba(128,128,128,0.9)", width: 1 } },
  });
  Plotly.react("scatter", traces, themed({
    xaxis: axisOf("ms an iteration", rows.map(row => row.ms)), yaxis: axisOf(COST_WORDS, rows.map(row => row[COST])),
    legend: narrow ? { orientation: "h", y: -0.18 } : {}, hovermode: "closest",
  }), OPTIONS);
  document.getElementById("front").replaceChildren(
    ...front.map(row => element("li", `${nameOf(row)}: ${figure(row.ms)} ms, ${figure(row[COST])} ${COST_WORDS}`)));
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
  const columns = COLUMNS.filter(([key]) => rows.some(row => cell(row, key) !== ""));
  for (const [key, words] of columns) {
    const made = element("th", words + (order.key === key ? (order.down ? " ▾" : " ▴") : ""), { "data-key": key, title: "sort" });
    made.onclick = () => { order = { key, down: order.key === key && !order.down }; drawTable(); };
    head.append(made);
  }
  for (const row of rows) {
    const line = element("tr", "", row.pareto ? { class: "pareto", title: row.command } : { title: row.command });
    const kindOf = key => typeof row[key] === "number" || key === "ms_interval" ? "right" : key === "fix" ? "words" : "";
    for (const [key] of columns) line.append(element("td", cell(row, key), { class: kindOf(key) }));
    body.append(line);
  }
  top.append(head);
  table.replaceChildren(top, body);
  const empty = COLUMNS.filter(column => !columns.includes(column)).map(([, words]) => words);
  document.getElementById("count").textContent = `${rows.length} rows, profile ${profile}. A click on a column sorts.`
    + (empty.length ? ` Left out, as no row has a value: ${empty.join(", ")}.` : "");
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
