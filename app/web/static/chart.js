"use strict";
// Line charts with uPlot, in the page's colours, as wide as their place.
const chart = (() => {
  const HEIGHT = 320;
  const COLOURS = 6;
  // When the colours begin anew, lines are drawn otherwise: on the canvas, and beside their names by CSS's word for it.
  const STROKES = [{ border: "solid" }, { dash: [6, 5], border: "dashed" }, { dash: [2, 4], border: "dotted" }];
  const CHARACTER = 7;  // pixels of one in a tick's text
  const AIR = 14;  // pixels between two of those
  const BESIDE = 96;  // pixels of a chart's width that are not between its ends: the other axis, and a margin
  const drawn = new Map();  // element -> what was drawn there and how, to draw it again when its width or the colours change

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const width = (element) => Math.max(240, element.clientWidth);
  const strokeOf = (series, index) => STROKES[series.dashed ? 1 : Math.floor(index / COLOURS) % STROKES.length];

  // spec: {x: [...], xLabel, xLog, xTicks: [[value, text]], xTold: value of the tick that goes before the others,
  //        yLabel, yLog, yFormat, xFormat, xLine: [{at, text}],
  //        series: [{label, values, dashed, points}], told: what it shows, in words}
  function draw(element, spec) {
    if (drawn.has(element)) drawn.get(element).plot.destroy();
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", describe(spec));
    const plot = new uPlot(options(element, spec), [spec.x, ...spec.series.map((series) => series.values)], element);
    drawn.set(element, { spec, plot });
    return plot;
  }

  // Who does not see it is told each line's two ends.
  function describe({ x, xLabel, xFormat = String, yLabel, yFormat, series, told }) {
    const ends = series.map(({ label, values }) => {
      const points = values.flatMap((value, index) => (value === null ? [] : [`${yFormat(value)} at ${xFormat(x[index])}`]));
      return `${label}: ${[...new Set([points[0], points.at(-1)])].join(", ")}.`;
    });
    return [`${yLabel} over ${xLabel}.`, ...ends, told].filter(Boolean).join(" ");
  }

  function options(element, spec) {
    return {
      width: width(element),
      height: HEIGHT,
      scales: { x: { time: false, distr: spec.xLog ? 3 : 1, range: spec.xRange }, y: { distr: spec.yLog ? 3 : 1, range: spec.yRange } },
      axes: [xAxis(element, spec), yAxis(spec)],
      series: [{ label: spec.xLabel, value: (_, value) => (value === null ? "" : (spec.xFormat || String)(value)) }, ...spec.series.map((series, index) => line(series, index, spec))],
      hooks: { draw: [(plot) => (spec.xLine || []).forEach((mark) => drawMark(plot, mark))] },
      legend: { markers: { dash: (_, index) => strokeOf(spec.series[index - 1], index - 1).border } },  // 0 is x
      cursor: { points: { size: 7 } },
    };
  }

  function line(series, index, spec) {
    const colour = css(series.dashed ? "--plot-6" : `--plot-${(index % COLOURS) + 1}`);
    return {
      label: series.label, stroke: colour, width: 2, spanGaps: false,
      dash: strokeOf(series, index).dash,
      points: { show: series.points !== false, size: 6, fill: colour },
      value: (_, value) => (value === null || value === undefined ? "–" : spec.yFormat(value)),
    };
  }

  function axis(label) {
    return {
      label, labelSize: 22, labelFont: "13px system-ui, sans-serif", font: "12px system-ui, sans-serif",
      stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 },
    };
  }

  function xAxis(element, spec) {
    const shown = axis(spec.xLabel);
    if (spec.xTicks) {
      const ticks = ticksWithRoom(spec, width(element) - BESIDE);
      shown.splits = () => ticks.map(([at]) => at);
      shown.filter = (_, splits) => splits;
      shown.values = () => ticks.map(([, text]) => text);
    } else {
      shown.values = (_, values) => values.map((value) => (value === null ? "" : (spec.xFormat || String)(value)));
    }
    return shown;
  }

  // From left to right, those that no text of one before, or of the one that is told, is printed over.
  function ticksWithRoom({ x, xLog, xTicks, xTold }, pixels) {
    const scale = xLog ? Math.log : Number;
    const pixel = (scale(x.at(-1)) - scale(x[0])) / pixels;
    const fit = ([at, text], [other, its]) => Math.abs(scale(at) - scale(other)) >= (((text.length + its.length) / 2) * CHARACTER + AIR) * pixel;
    const kept = xTicks.filter(([at]) => at === xTold);
    for (const tick of xTicks) if (kept.every((one) => fit(one, tick))) kept.push(tick);
    return kept.sort(([one], [other]) => one - other);
  }

  function yAxis(spec) {
    const shown = axis(spec.yLabel);
    shown.size = 72;
    shown.values = (_, values) => values.map((value) => (value === null ? "" : spec.yFormat(value)));
    if (spec.yLog) shown.grid.filter = shown.ticks.filter = onlyPowersOfTen;
    return shown;
  }

  const onlyPowersOfTen = (_, values) => values.map((value) => (value !== null && Math.abs(Math.log10(value) % 1) < 1e-9 ? value : null));

  function drawMark(plot, mark) {
    const x = Math.round(plot.valToPos(mark.at, "x", true));
    const { left, top, width: wide, height } = plot.bbox;
    if (x < left || x > left + wide) return;
    const context = plot.ctx;
    context.save();
    context.strokeStyle = context.fillStyle = css("--quiet");
    context.setLineDash([4, 4]);
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
    context.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    const right = x > left + wide * 0.7;
    context.textAlign = right ? "right" : "left";
    context.fillText(mark.text, x + (right ? -6 : 6) * devicePixelRatio, top + 14 * devicePixelRatio);
    context.restore();
  }

  function drawAllAgain() {
    for (const [element, { spec }] of [...drawn]) draw(element, spec);
  }

  let timer = 0;
  addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(drawAllAgain, 120); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAllAgain);
  return { draw };
})();
