"use strict";
// The answer to a question.
function showAnswer(answer) {
  byId("answer").hidden = false;
  byId("verdict").textContent = answer.verdict;
  byId("workload").textContent = workloadLine(answer);
  byId("options").replaceChildren(optionsTable(answer));
  fillList("notes", noteLines(answer.options));
  showCurves(answer);
  fillPart("crossovers", describeCrossovers(answer.crossovers, answer.workload.data));
  fillPart("reasons", answer.reasons.map((reason) => reason.text));
  showSettings(answer.settings || {});
  byId("snippet-part").hidden = !answer.snippet;
  byId("snippet").textContent = answer.snippet || "";
  byId("verdict").focus();
}

function workloadLine({ workload, confidence }) {
  const parts = [`${workload.model}, ${workload.mode}, batch ${workload.batch_size}`];
  if (workload.parameters !== null && workload.parameters !== undefined) parts.push(parametersText(workload));
  if (workload.flops_per_step) parts.push(`${units.count(workload.flops_per_step)} FLOPs a step`);
  if (confidence !== null && confidence !== undefined) parts.push(`confidence ${units.share(confidence)}`);
  return parts.join("; ");
}

// Of training both counts where they differ: inference trains nothing, and runs them all.
function parametersText({ mode, parameters, all_parameters: all = parameters }) {
  if (mode === "inference" || parameters === all) return `${units.count(all)} parameters`;
  return `${units.count(parameters)} of ${units.count(all)} parameters trained`;
}

function optionsTable({ options, recommended }) {
  const titles = ["plan", "one step", "samples/s", "memory at peak", "largest batch", "basis"];
  return makeTable(titles, options.map((option, index) => optionRow(option, index === 0 && recommended !== null)));
}

// What torch allocates is known before a calibration has measured what the process takes beside.
function memoryTaken({ peak_bytes: peak, allocated_peak_bytes: allocated }) {
  return peak === null && typeof allocated === "number" ? `over ${units.bytes(allocated)}` : units.bytes(peak);
}

function optionRow(option, best) {
  return makeRow([
    make("td", units.plan(option)),
    timeCell(option.step_seconds),
    make("td", units.count(rounded(option.samples_per_second))),
    make("td", `${memoryTaken(option.memory)} of ${units.bytes(option.memory.available_bytes)}`),
    make("td", units.count(option.max_batch_size)),
    option.fits === false ? make("td", "does not fit", "bad") : make("td", option.basis || "unknown"),
  ], best ? "best" : "");
}

const rounded = (rate) => (typeof rate === "number" && rate >= 10 ? Math.round(rate) : rate);

function timeCell(interval) {
  const cell = make("td", units.seconds(interval && interval.median));
  if (interval) cell.append(make("small", ` ${units.seconds(interval.low)} to ${units.seconds(interval.high)}`));
  return cell;
}

// Why a time is unknown or a plan does not fit: each sentence once, with the plans that it holds for.
function noteLines(options) {
  const plans = new Map();
  for (const option of options) {
    for (const text of new Set([option.why_not, option.note].filter(Boolean))) {
      plans.set(text, [...(plans.get(text) || []), units.plan(option)]);
    }
  }
  return [...plans].map(([text, names]) => (names.length === options.length && names.length > 1 ? text : `${names.join("; ")}: ${text}`));
}

// A sentence a pair of plans, fed as was asked for, with what other ways of feeding the device make of it.
function describeCrossovers(crossovers, asked) {
  const pairs = new Map();
  for (const crossover of crossovers) {
    const pair = `${units.plan(crossover.from)} -> ${units.plan(crossover.to)}`;
    pairs.set(pair, [...(pairs.get(pair) || []), crossover]);
  }
  return [...pairs.values()].map((rows) => describePair(rows, asked));
}

function describePair(rows, asked) {
  const told = rows.find((row) => row.data === asked) || rows[0];
  const ways = new Map();
  for (const row of rows.filter((other) => other !== told)) {
    const where = whereCrossed(row) === whereCrossed(told) ? "the same" : whereCrossed(row);
    ways.set(where, [...(ways.get(where) || []), row.data]);
  }
  const otherwise = [...ways].map(([where, data]) => `; ${where} with data ${data.join(" and ")}`).join("");
  return `${describeCrossover(told).replace(/\.$/u, "")}${otherwise}.`;
}

const around = ({ batch_size: middle, low, high }) => (low !== null && low !== high ? `${middle} (${low} to ${high})` : `${middle}`);

function whereCrossed(crossover) {
  return {
    at: `at batch ${around(crossover)}`,
    always: "at every batch looked at",
    never: "not for good",
    undecided: "nobody can tell",
  }[crossover.kind];
}

function describeCrossover(crossover) {
  const from = units.plan(crossover.from);
  const to = units.plan(crossover.to);
  const [smallest, largest] = crossover.looked_at;
  const sentence = {
    at: `${to} overtakes ${from} at batch ${around(crossover)}`,
    always: `${to} is faster than ${from} at every batch looked at, from ${smallest} to ${largest}`,
    never: `${to} does not overtake ${from} for good from batch ${smallest} to ${largest}: it is slower at the largest`,
    undecided: `Whether ${to} overtakes ${from} for good cannot be told: at batch ${largest}, the largest looked at, their times overlap`,
  }[crossover.kind];
  const inside = [`data ${crossover.data}`, crossover.basis];
  if (crossover.medians_cross_at && crossover.kind === "undecided") inside.push(`likeliest from batch ${crossover.medians_cross_at} on`);
  if (crossover.launch_bound_until > 1) inside.push(`limited by launching until batch ${crossover.launch_bound_until}`);
  if (crossover.launch_bound_at_largest) inside.push("limited by launching up to the largest batch");
  if (crossover.break_even_steps) inside.push(`start-up repaid after ${units.count(crossover.break_even_steps)} steps`);
  return `${sentence} (${inside.join(", ")}).`;
}

function showSettings(settings) {
  const list = byId("settings");
  const entries = Object.entries(settings);
  byId("settings-part").hidden = !entries.length;
  list.className = "facts";
  list.replaceChildren(...entries.flatMap(([name, value]) => [make("dt", name), make("dd", settingText(value))]));
}

function settingText(value) {
  if (Array.isArray(value)) return value.map(settingText).join(", ");
  if (value !== null && typeof value === "object") {
    return Object.entries(value).map(([name, inner]) => `${name} ${settingText(inner)}`).join(", ");
  }
  return String(value);
}

async function copySnippet() {
  const button = byId("copy");
  try {
    await navigator.clipboard.writeText(byId("snippet").textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(byId("snippet"));  // no clipboard without https or permission: ready for Ctrl-C
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

byId("copy").addEventListener("click", copySnippet);
