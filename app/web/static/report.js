"use strict";
// The charts of an experiment's report; its data stands in the document.
{
  const { devices } = JSON.parse(document.getElementById("data").textContent);
  const union = (lists) => [...new Set(lists.flat())].sort((a, b) => a - b);
  const column = (pairs, keys) => { const found = new Map(pairs); return keys.map((key) => (found.has(key) ? found.get(key) : null)); };

  // Readings run from none to one an epoch: evenly spaced places, since no axis shows 0 and 20,000 alike.
  const readings = union(devices.map((device) => device.variants.map((variant) => variant.readings)));
  const places = readings.map((_, index) => index);
  const times = devices.map((device) => ({
    label: device.device,
    values: column(device.variants.map((variant) => [variant.readings, variant.total_seconds]), readings),
  }));
  const most = Math.max(...readings);
  const slowest = Math.max(...times.flatMap((series) => series.values.filter((value) => value !== null)));
  if (readings.length > 1 && most > 0) {
    times.push({ label: "in line with the readings", dashed: true, points: false, values: readings.map((count) => (slowest * count) / most) });
  }
  chart.draw(document.getElementById("times"), {
    x: places, xLabel: "readings of the loss", xTicks: readings.map((count, index) => [index, count.toLocaleString("en")]),
    xFormat: (place) => (readings[place] === undefined ? "" : readings[place].toLocaleString("en")),
    xRange: () => [-0.3, readings.length - 0.7], yRange: (_, __, high) => [0, high * 1.1 || 1],
    yLabel: "whole run", yFormat: units.seconds, series: times,
  });

  const epochs = union(devices.map((device) => device.loss_curve.map(([epoch]) => epoch)));
  chart.draw(document.getElementById("losses"), {
    x: epochs, xLabel: "epoch", xFormat: (epoch) => epoch.toLocaleString("en"), yLabel: "cross-entropy", yFormat: (loss) => String(Number(loss.toPrecision(3))),
    yRange: (_, __, high) => [0, high * 1.05 || 1],
    series: devices.map((device) => ({ label: device.device, values: column(device.loss_curve, epochs), points: false })),
  });
}
