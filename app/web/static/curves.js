"use strict";
// Each plan's time of a step over the batch size: a chart, and the same as a table.
function showCurves(answer) {
  const { batch_sizes: batches, plans } = answer.curves || { batch_sizes: [], plans: [] };
  const known = (plans || []).filter((plan) => plan.step_seconds.some((value) => value !== null));
  byId("chart-figure").hidden = !known.length || batches.length < 2;
  if (byId("chart-figure").hidden) return;
  drawCurves(answer, batches, known);
  byId("curves").replaceChildren(curvesTable(batches, known));
}

function drawCurves({ crossovers, workload }, batches, known) {
  const drawn = new Set(known.map(units.plan));
  const fedAlike = crossovers.filter((crossover) => crossover.data === workload.data);
  const crossings = fedAlike.filter((crossover) => crossover.kind === "at"
    && drawn.has(units.plan(crossover.from)) && drawn.has(units.plan(crossover.to))).slice(0, 1);
  chart.draw(byId("chart"), {
    x: batches, xLabel: "batch size", xLog: true, yLog: true, yLabel: "one step", yFormat: units.seconds, xFormat: String,
    xTicks: batches.map((batch) => [batch, batch.toLocaleString("en")]), xTold: workload.batch_size,
    xLine: crossings.map((crossover) => ({ at: crossover.batch_size, text: `${units.plan(crossover.to)} from ${crossover.batch_size} on` })),
    series: known.map((plan) => ({ label: units.plan(plan), values: plan.step_seconds })),
    told: fedAlike.map(describeCrossover).join(" "),
  });
}

function curvesTable(batches, plans) {
  return makeTable(["batch size", ...plans.map(units.plan)], batches.map((batch, index) => makeRow([
    make("td", batch.toLocaleString("en")),
    ...plans.map((plan) => make("td", units.seconds(plan.step_seconds[index]))),
  ])));
}
