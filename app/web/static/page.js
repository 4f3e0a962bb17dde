"use strict";
// The page: reads the machine and the models, asks POST /recommend, shows the answer. All text goes in as text, never as HTML.
const byId = (id) => document.getElementById(id);

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  if (className) element.className = className;
  return element;
}

// ---- asking -------------------------------------------------------------------------------------------------------

class Problem extends Error {}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Problem("The service does not answer. Is it still running?");
  }
  const document = await response.json().catch(() => null);
  if (!response.ok) throw new Problem(describeProblem(document, response.status));
  if (document === null) throw new Problem("The service answered with something that is no JSON.");
  return document;
}

// A problem document (RFC 9457) in a sentence or two.
function describeProblem(problem, status) {
  if (problem === null || typeof problem !== "object") return `The service answered with status ${status}.`;
  const parts = [problem.detail || problem.title || `The service answered with status ${status}.`];
  for (const error of Array.isArray(problem.errors) ? problem.errors : []) {
    const said = error && (error.detail || error.message);
    if (said && !parts.join(" ").includes(said)) parts.push(said);  // the detail may hold them all
  }
  const near = (problem.suggestions || []).filter((name) => !parts.join(" ").includes(name));
  if (near.length) parts.push(`Near: ${near.join(", ")}.`);
  return parts.join(" ");
}

// ---- the machine --------------------------------------------------------------------------------------------------

async function showMachine() {
  const place = byId("machine");
  try {
    const hardware = await ask("/hardware");
    const list = make("dl", null, "facts");
    for (const [name, value] of machineFacts(hardware)) list.append(make("dt", name), make("dd", value));
    place.replaceChildren(list, ...hardware.findings.map(findingCard));
  } catch (error) {
    place.replaceChildren(make("p", error.message));
  }
}

function machineFacts(hardware) {
  const { cpu, memory, accelerators, software } = hardware;
  const limit = cpu.usable_cores_limit ? ` (limited by ${cpu.usable_cores_limit})` : "";
  const facts = [
    ["CPU", [cpu.name || "unknown", cpu.microarchitecture].filter(Boolean).join(", ")],
    ["Cores", `${cpu.physical_cores ?? "?"} physical, ${cpu.logical_cores ?? "?"} logical, ${cpu.usable_cores ?? "?"} usable${limit}`],
    ["Memory", `${units.bytes(memory.usable_bytes)} usable of ${units.bytes(memory.total_bytes)}`],
  ];
  for (const accelerator of accelerators) facts.push([accelerator.torch_device || "Accelerator", acceleratorLine(accelerator)]);
  if (!accelerators.length) facts.push(["Accelerator", hardware.fingerprint ? "none found" : "unknown"]);  // a survey that failed has no fingerprint
  facts.push(["torch", torchLine(software)]);
  return facts;
}

function torchLine({ torch, python }) {
  if (!torch || !torch.version) return python ? "not installed" : "unknown";  // of a captured machine nobody can tell
  return `${torch.version}${torch.cuda_version ? `, CUDA ${torch.cuda_version}` : ""}`;
}

function acceleratorLine(accelerator) {
  const memory = `${units.bytes(accelerator.memory_free_bytes)} free of ${units.bytes(accelerator.memory_total_bytes)}`;
  const why = accelerator.usable === false ? `; not usable: ${accelerator.why_not || "unknown why"}` : "";
  return `${accelerator.name || accelerator.id}, ${memory}${why}`;
}

function findingCard(finding) {
  const card = make("div", null, `finding ${finding.severity}`);
  card.append(make("p", finding.message));
  if (finding.fix) card.append(make("p", finding.fix, "quiet"));
  return card;
}

// ---- the question -------------------------------------------------------------------------------------------------

async function showModels() {
  const select = byId("model");
  try {
    const answer = await ask("/models");
    const families = new Map();
    for (const model of Array.isArray(answer) ? answer : answer.models) {
      if (!families.has(model.family)) families.set(model.family, make("optgroup"));
      const option = make("option", `${model.name} (${units.count(model.parameters)} parameters)`);
      option.value = model.name;
      option.title = model.summary || "";
      families.get(model.family).append(option);
    }
    for (const [family, group] of families) group.label = family;
    select.replaceChildren(...families.values());
  } catch (error) {
    select.replaceChildren(new Option("", ""));
    showProblem(error.message);
  }
}

function readQuestion(form) {
  const values = new FormData(form);
  const own = byId("own-model").value.trim();
  const question = {
    model: own ? parseOwn(own) : values.get("model"),
    batch_size: Number(values.get("batch_size")),
  };
  for (const name of ["mode", "optimizer", "precision", "data", "effort"]) question[name] = values.get(name);
  if (values.get("log_every")) question.log_every = Number(values.get("log_every"));
  return question;
}

// JSON becomes a description; a bare config.json is wrapped, as on the command line; a bare word is a name.
function parseOwn(text) {
  if (/^[\w.-]+$/.test(text)) return text;
  let description;
  try {
    description = JSON.parse(text);
  } catch (error) {
    throw new Problem(`The model's JSON cannot be read: ${error.message}`);
  }
  const isConfig = description && typeof description === "object" && ("model_type" in description || "auto_map" in description);
  return isConfig ? { huggingface: description } : description;
}

async function answerQuestion(event) {
  event.preventDefault();
  const button = byId("ask");
  const status = byId("status");
  showProblem("");
  button.disabled = true;
  const begun = performance.now();
  const clock = make("span");
  clock.setAttribute("aria-hidden", "true");  // not to be read aloud each second
  const tick = () => { clock.textContent = `${((performance.now() - begun) / 1000).toFixed(0)} s`; };
  status.replaceChildren("Working … ", clock);
  tick();
  const timer = setInterval(tick, 1000);
  try {
    const question = readQuestion(event.target);
    const answer = await ask("/recommend", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question),
    });
    showAnswer(answer);
    keepInAddress(question);
    status.textContent = `Answered in ${units.seconds((performance.now() - begun) / 1000)}.`;
  } catch (error) {
    status.textContent = "";
    byId("answer").hidden = true;
    showProblem(error instanceof Problem ? error.message : `The page failed: ${error.message}`);
  } finally {
    clearInterval(timer);
    button.disabled = false;
  }
}

function showProblem(message) {
  const place = byId("problem");
  place.textContent = message;
  place.hidden = !message;
}

// ---- the answer ---------------------------------------------------------------------------------------------------

function showAnswer(answer) {
  byId("answer").hidden = false;
  byId("verdict").textContent = answer.verdict;
  byId("workload").textContent = workloadLine(answer);
  byId("options").replaceChildren(optionsTable(answer));
  fillList("notes", noteLines(answer.options));
  showCurves(answer);
  fillPart("crossovers", answer.crossovers.map(describeCrossover));
  fillPart("reasons", answer.reasons.map((reason) => reason.text));
  showSettings(answer.settings || {});
  byId("snippet-part").hidden = !answer.snippet;
  byId("snippet").textContent = answer.snippet || "";
  byId("verdict").focus();
}

function workloadLine({ workload, confidence }) {
  const parts = [`${workload.model}, ${workload.mode}, batch ${workload.batch_size}`];
  if (workload.parameters !== null && workload.parameters !== undefined) parts.push(`${units.count(workload.parameters)} parameters`);
  if (workload.flops_per_step) parts.push(`${units.count(workload.flops_per_step)} FLOPs a step`);
  if (confidence !== null && confidence !== undefined) parts.push(`confidence ${units.share(confidence)}`);
  return parts.join("; ");
}

function optionsTable({ options, recommended }) {
  const table = make("table");
  const head = table.createTHead().insertRow();
  for (const title of ["plan", "one step", "samples/s", "memory at peak", "largest batch", "basis"]) {
    const cell = make("th", title);
    cell.scope = "col";
    head.append(cell);
  }
  const body = table.createTBody();
  options.forEach((option, index) => body.append(optionRow(option, index === 0 && recommended !== null)));
  return table;
}

function optionRow(option, best) {
  const row = make("tr", null, best ? "best" : "");
  row.append(
    make("td", units.plan(option)),
    timeCell(option.step_seconds),
    make("td", units.count(rounded(option.samples_per_second))),
    make("td", `${units.bytes(option.memory.peak_bytes)} of ${units.bytes(option.memory.available_bytes)}`),
    make("td", units.count(option.max_batch_size)),
    option.fits === false ? make("td", "does not fit", "bad") : make("td", option.basis || "unknown"),
  );
  return row;
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

function describeCrossover(crossover) {
  const from = units.plan(crossover.from);
  const to = units.plan(crossover.to);
  const around = crossover.low !== null && crossover.low !== crossover.high ? ` (${crossover.low} to ${crossover.high})` : "";
  const [smallest, largest] = crossover.looked_at;
  const sentence = {
    at: `${to} overtakes ${from} at batch ${crossover.batch_size}${around}`,
    always: `${to} is faster than ${from} at every batch looked at, from ${smallest} to ${largest}`,
    never: `${to} does not overtake ${from} for good from batch ${smallest} to ${largest}: it is slower at the largest`,
    undecided: `Whether ${to} overtakes ${from} cannot be told: their times overlap`,
  }[crossover.kind];
  const inside = [`data ${crossover.data}`, crossover.basis];
  if (crossover.medians_cross_at && crossover.kind === "undecided") inside.push(`likeliest from batch ${crossover.medians_cross_at} on`);
  if (crossover.launch_bound_until > 1) inside.push(`limited by launching until batch ${crossover.launch_bound_until}`);
  if (crossover.launch_bound_at_largest) inside.push("limited by launching up to the largest batch");
  if (crossover.break_even_steps) inside.push(`start-up repaid after ${units.count(crossover.break_even_steps)} steps`);
  return `${sentence} (${inside.join(", ")}).`;
}

function showCurves(answer) {
  const { batch_sizes: batches, plans } = answer.curves || { batch_sizes: [], plans: [] };
  const known = (plans || []).filter((plan) => plan.step_seconds.some((value) => value !== null));
  byId("chart-figure").hidden = !known.length || batches.length < 2;
  if (byId("chart-figure").hidden) return;
  const drawn = new Set(known.map(units.plan));
  const crossings = answer.crossovers.filter((crossover) => crossover.kind === "at" && crossover.data === answer.workload.data
    && drawn.has(units.plan(crossover.from)) && drawn.has(units.plan(crossover.to))).slice(0, 1);
  chart.draw(byId("chart"), {
    x: batches, xLabel: "batch size", xLog: true, yLog: true, yLabel: "one step", yFormat: units.seconds, xFormat: String,
    xTicks: batches.map((batch) => [batch, batch.toLocaleString("en")]),
    xLine: crossings.map((crossover) => ({ at: crossover.batch_size, text: `${units.plan(crossover.to)} from ${crossover.batch_size} on` })),
    series: known.map((plan) => ({ label: units.plan(plan), values: plan.step_seconds })),
    told: ["Time of one step over the batch size.", ...answer.crossovers.filter((crossover) => crossover.data === answer.workload.data).map(describeCrossover)].join(" "),
  });
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

function fillList(id, sentences) {
  byId(id).replaceChildren(...sentences.map((sentence) => make("li", sentence)));
}

function fillPart(id, sentences) {
  byId(`${id}-part`).hidden = !sentences.length;
  fillList(id, sentences);
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

// ---- the address ------------------------------------------------------------------------------------------------

// The question stands in the address, so that it can be kept and sent.
function keepInAddress(question) {
  const kept = Object.entries(question).filter(([, value]) => typeof value !== "object");
  history.replaceState(null, "", `?${new URLSearchParams(kept)}`);
}

// Fill the form from the address. Only a question that measures nothing is asked at once: a link starts no measurement.
// What is asked is what the form holds by then, whatever the address says twice.
function askFromAddress() {
  const given = new Map(new URLSearchParams(location.search));
  if (!given.get("model")) return;
  const form = byId("question");
  for (const [name, value] of given) {
    const field = form.querySelector(`[name="${CSS.escape(name)}"]`);
    if (field) field.value = value;
  }
  if (form.elements.model.value !== given.get("model")) {
    byId("own-model").value = given.get("model");
    byId("own").open = true;
  }
  if (form.elements.effort.value === "instant") form.requestSubmit();
}

byId("question").addEventListener("submit", answerQuestion);
byId("copy").addEventListener("click", copySnippet);
showMachine();
showModels().then(askFromAddress);
