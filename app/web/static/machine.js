"use strict";
// What this machine is, and what is in the way on it.
let shownCards = null;  // as `nameCards` has them; null: none were read
let machineTimer = 0;

// Called whenever something may have changed; where the service does not answer, it is asked again.
async function showMachine() {
  clearTimeout(machineTimer);
  let hardware;
  try {
    hardware = await ask("/hardware");
  } catch (error) {
    renew(byId("machine"), []);
    renew(byId("findings"), [make("p", error.message)]);
    clearTimeout(machineTimer);  // of another call meanwhile
    machineTimer = setTimeout(showMachine, AGAIN_SECONDS * 1000);
    return;
  }
  const list = make("dl", null, "facts");
  for (const [name, value] of machineFacts(hardware)) list.append(make("dt", name), make("dd", value));
  renew(byId("machine"), [list]);
  renew(byId("findings"), hardware.findings.map(findingCard));
  shownCards = nameCards(hardware.accelerators);
}

const nameCards = (accelerators) => accelerators.map((card) => card.id).sort().join(" ");

function machineFacts(hardware) {
  const { cpu, memory, accelerators, software } = hardware;
  const limit = cpu.usable_cores_limit ? ` (limited by ${cpu.usable_cores_limit})` : "";
  const facts = [
    ["CPU", [cpu.name || "unknown", cpu.microarchitecture].filter(Boolean).join(", ")],
    ["Cores", `${cpu.physical_cores ?? "?"} physical, ${cpu.logical_cores ?? "?"} logical, ${cpu.usable_cores ?? "?"} usable${limit}`],
    ["Memory", `${units.bytes(memory.usable_bytes)} usable of ${units.bytes(memory.total_bytes)}`],
  ];
  for (const accelerator of accelerators) facts.push([accelerator.torch_device || "Accelerator", acceleratorLine(accelerator)]);
  if (!accelerators.length) facts.push(["Accelerator", absenceLine(hardware.findings)]);
  facts.push(["torch", torchLine(software)], ...failureLines(hardware.probes));
  return facts;
}

// Whether there is none is the diagnosis' to say: the driver that knows of one may not have answered.
function absenceLine(findings) {
  return findings.some((finding) => finding.code === "no-gpu") ? "none found" : "unknown";
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

// Probes that should have answered and did not, as on the command line; `absent` is an answer.
function failureLines(probes) {
  return Object.entries(probes)
    .filter(([, { outcome }]) => outcome !== "ok" && outcome !== "absent")
    .map(([name, { outcome, reason }]) => [`Not read: ${name}`, [outcome, reason].filter(Boolean).join(", ")]);
}

function findingCard(finding) {
  const card = make("div", null, `finding ${finding.severity}`);
  const message = make("p");
  message.append(make("strong", `${finding.severity}: `), `${finding.message} [${finding.code}]`);
  card.append(message);
  if (finding.fix) card.append(make("p", finding.fix, "quiet"));
  return card;
}
