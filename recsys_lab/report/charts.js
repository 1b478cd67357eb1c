// Charts of our pages. A page carries Plotly's script and the figures compressed; its content policy allows no other script.
"use strict";
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7f7f7f"];
const BUTTONS = [["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]];
const OPTIONS = { responsive: true, displaylogo: false, modeBarButtons: BUTTONS };
const TOUCH = window.matchMedia("(pointer: coarse)").matches;
const PRINTED_PX = 680;

async function unpacked(element) {
  const bytes = Uint8Array.from(atob(element.textContent), letter => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const plotlyReady = unpacked(document.getElementById("plotly")).then(text => {
  const script = document.createElement("script");
  script.textContent = text;
  document.head.append(script);
});

function themed(layout) {
  const ink = getComputedStyle(document.body).color, rule = getComputedStyle(document.documentElement).getPropertyValue("--rule");
  const axes = Object.fromEntries(["xaxis", "yaxis", ...Object.keys(layout)].filter(key => /^[xy]axis/.test(key))
    .map(key => [key, { gridcolor: rule, zerolinecolor: rule, automargin: true, ...layout[key] }]));
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, family: "system-ui, sans-serif", size: 12 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "rgba(128,128,128,0.5)", activecolor: ink }, margin: { l: 60, r: 14, t: 34, b: 48 },
    ...(TOUCH ? { dragmode: false } : {}), ...layout, ...axes,
  };
}

async function drawChart(packed) {
  const place = document.getElementById(packed.dataset.chart), figure = JSON.parse(await unpacked(packed));
  await plotlyReady;
  await Plotly.newPlot(place, figure.data, themed(figure.layout), OPTIONS);
}

const drawn = Promise.all([...document.querySelectorAll("script[data-chart]")].map(drawChart));
const resized = width => document.querySelectorAll(".js-plotly-plot").forEach(plot => Plotly.relayout(plot, { width, autosize: !width }));
window.addEventListener("beforeprint", () => resized(PRINTED_PX));
window.addEventListener("afterprint", () => resized(null));
