"use strict";
// The form: what can be chosen in it, and the question that it holds.
const CHOICES = ["mode", "optimizer", "precision", "data", "effort", "profile"];
const NUMBERS = ["batch_size", "log_every", "time_limit_seconds"];
const OF_THE_DATASET = ["samples", "epochs"];
// JSON has no such numbers, and some published configs do.
const SPECIAL_FLOAT_ADVICE = 'In a config.json leave its key out, or write {"__float__": "Infinity"} as transformers does now.';

async function showModels() {
  const select = byId("model");
  const answer = await askUntilAnswered("/models", (why) => {
    select.replaceChildren(new Option(`The models cannot be listed. ${why}`, ""));
  });
  const families = new Map();
  for (const model of answer.models) {
    if (!families.has(model.family)) families.set(model.family, make("optgroup"));
    const option = new Option(`${model.name} (${units.count(model.parameters)} parameters)`, model.name);
    option.title = model.summary || "";
    families.get(model.family).append(option);
  }
  for (const [family, group] of families) group.label = family;
  select.replaceChildren(...families.values());
}

async function showProfiles() {
  const { profiles } = await askUntilAnswered("/profiles", () => {});
  const others = profiles.filter((profile) => !profile.this_machine);
  for (const { name } of others) offer(byId("profile"), name);
}

// An option, unless there is one of this value.
function offer(select, value) {
  if (![...select.options].some((option) => option.value === value)) select.append(new Option(value, value));
}

function readQuestion(form) {
  const values = new FormData(form);
  const read = (names, convert) => Object.fromEntries(
    names.filter((name) => values.get(name)).map((name) => [name, convert(values.get(name))]),
  );
  const question = { model: readModel(), ...read(NUMBERS, Number), ...read(CHOICES, String) };
  const dataset = read(OF_THE_DATASET, Number);
  if (Object.keys(dataset).length) question.dataset = dataset;
  const devices = values.get("devices").split(",").map((name) => name.trim()).filter(Boolean);
  if (devices.length) question.devices = devices;
  return question;
}

function readModel() {
  const own = ownText();
  return own ? parseOwn(own) : byId("model").value;
}

// A model of one's own counts while it can be seen; the list of names is greyed meanwhile.
const ownText = () => (byId("own").open ? byId("own-model").value.trim() : "");

function greyNames() {
  byId("model").disabled = ownText() !== "";
}

function writeOwn(text) {
  byId("own-model").value = text;
  byId("own").open = true;
  greyNames();
}

// JSON becomes a description; a bare config.json is wrapped, as on the command line; anything else is a name, of which
// the service says what is wrong with it.
function parseOwn(text) {
  if (!/^[[{"]/.test(text)) return text;
  let description;
  try {
    description = JSON.parse(text, refuseInfinite);
  } catch (error) {
    const advice = /[:,[]\s*-?(Infinity|NaN)\b/.test(text) ? ` ${SPECIAL_FLOAT_ADVICE}` : "";
    throw new Problem(`The model's JSON cannot be read: ${error.message}.${advice}`);
  }
  const isConfig = description && typeof description === "object" && ("model_type" in description || "auto_map" in description);
  return isConfig ? { huggingface: description } : description;
}

// As 1e999 is read, and would be sent as null.
function refuseInfinite(key, value) {
  if (typeof value === "number" && !Number.isFinite(value)) throw new SyntaxError(`the number at "${key}" is too large`);
  return value;
}

byId("own").addEventListener("toggle", greyNames);
byId("own-model").addEventListener("input", greyNames);
greyNames();  // a browser that reloads may have kept it greyed
// A browser shows what is wrong with a field where it can be seen, and else neither asks nor says why.
byId("question").addEventListener("invalid", (event) => openAround(event.target), true);

function openAround(field) {
  const folded = field.closest("details");
  if (folded) folded.open = true;
}
