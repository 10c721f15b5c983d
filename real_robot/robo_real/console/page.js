// The page of `robo-rl console`: shows the robot, and says 20 times a second what the operator's hands do.
// Every text of the server becomes text content, never HTML.
import { Controls, GRIP, MOVES } from "/controls.js";

const TOKEN = location.hash.slice(1);
const PERIOD = 50; // [ms] between two words of the page
const AGAIN = 500; // [ms] until the next try to connect
const STALE = 0.5; // [s] after which a picture is said to be old
const LABEL_KEYS = { Digit1: "success", Digit2: "failure", Digit3: "discard" };
const node = (id) => document.getElementById(id);
const controls = new Controls(
  stop,
  () => say({ kind: "lost" }),
  (kind) => (kind === "start" ? say({ kind }) : label(kind)),
);
let socket = null;
let cameras = [];
let status = null;
let stopWanted = false; // said again with every new connection, until the robot says that it is stopped
let refused = false;

function say(facts) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(facts));
}

function stop() {
  stopWanted = true;
  say({ kind: "stop" });
  draw();
}

function connect() {
  if (!TOKEN) return alertOf("The address lacks the token: use the one that robo-rl console printed.");
  socket = new WebSocket(`ws://${location.host}/socket`);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => {
    say({ kind: "hello", token: TOKEN });
    say({ kind: "sit" });
    if (stopWanted) say({ kind: "stop" });
  };
  socket.onmessage = (event) => (typeof event.data === "string" ? hear(JSON.parse(event.data)) : show(event.data));
  socket.onclose = (event) => {
    status = null;
    refused = event.code === 4401;
    if (!refused) setTimeout(connect, AGAIN);
    draw();
  };
}

function hear(told) {
  if (told.kind === "welcome") welcome(told);
  else if (told.kind === "refused") node("message").textContent = told.why;
  else if (told.kind === "status") {
    say({ kind: "seen", camera: "report", number: told.number });
    status = told;
    if (told.grip !== null && (told.episode !== controls.episode || !controls.read().held)) {
      [controls.grip, controls.episode] = [told.grip, told.episode]; // to take over neither opens nor closes the fingers
    }
    if (isLatched()) stopWanted = false;
    draw();
  }
}

function welcome(told) {
  cameras = told.cameras.map((name) => {
    const figure = document.createElement("figure");
    const image = document.createElement("img");
    const caption = document.createElement("figcaption");
    image.alt = name;
    figure.append(image, caption);
    return { name, figure, image, caption, count: 0, rate: null, since: performance.now() };
  });
  node("cameras").replaceChildren(...cameras.map((camera) => camera.figure));
  node("links").replaceChildren(...Object.entries(told.links).map(([words, address]) => link(words, address)));
  controls.names = told.names;
  pads();
}

function link(words, address) {
  const anchor = document.createElement("a");
  anchor.textContent = words;
  anchor.href = address;
  anchor.target = "_blank";
  return anchor;
}

function show(data) {
  const camera = cameras[new Uint8Array(data, 0, 1)[0]];
  if (!camera) return;
  const number = new DataView(data).getUint32(1);
  const address = URL.createObjectURL(new Blob([new Uint8Array(data, 5)], { type: "image/jpeg" }));
  // seen once it is drawn: a page that is slow to draw is sent fewer pictures, not older ones
  camera.image.onload = camera.image.onerror = () => {
    URL.revokeObjectURL(address);
    say({ kind: "seen", camera: camera.name, number });
  };
  camera.image.src = address;
  camera.count += 1;
  const now = performance.now();
  if (now - camera.since > 1000) {
    camera.rate = (1000 * camera.count) / (now - camera.since);
    [camera.count, camera.since] = [0, now];
  }
}

function alertOf(text) {
  node("alert").hidden = !text;
  node("alert").textContent = text;
}

function isLatched() {
  return ["stopped", "fault"].includes(status?.health.mode) || (status?.state === "waiting" && status.wish === "stop");
}

function headline() {
  if (refused) return "The token is not the console's";
  if (!status) return "Connection lost: the arm holds, then stops";
  if (status.health.problem) return "The robot does not answer";
  if (stopWanted) return "Stopping";
  if (isLatched() && !status.health.reason) return "The robot was re-armed elsewhere: look, and re-arm here too";
  if (isLatched()) return `Stopped: ${status.health.reason}`.replace("Stopped: stop: ", "Stopped by ");
  if (status.state !== "running") return "Waiting: nothing moves";
  const hold = "Lost you: the arm holds until you let go of the switch and press it again";
  const words = { policy: status.alone, person: "You act", hold, stop: "Stopping" };
  if (status.operator !== "you" && status.wish === "person") return "The operator acts";
  return words[status.wish];
}

function draw() {
  const health = status?.health;
  document.body.classList.toggle("gone", !status);
  document.body.classList.toggle("stopped", stopWanted || ["stopped", "fault"].includes(health?.mode));
  document.body.dataset.want = status?.state === "running" ? status.wish : "";
  const words = headline();
  if (node("headline").textContent !== words) node("headline").textContent = words;
  const mine = status?.operator === "you";
  const runs = status?.state === "running";
  const latched = isLatched();
  node("start").disabled = !mine || runs || latched;
  node("follow").disabled = !mine || latched;
  node("sit").hidden = !status || status.operator !== "";
  node("rearm").hidden = !latched;
  node("rearm").disabled = !mine || !status.is_current;
  for (const button of document.querySelectorAll("[data-label]")) button.disabled = !mine || !runs;
  if (!status) return;
  alertOf(status.operator === "another" ? "Another operator is at the console. You may watch, and stop." : health.problem ?? "");
  node("follow").checked = status.follows;
  node("give-back").textContent = status.has_policy ? "Let go to give back to the policy." : "Let go, and the arm holds still.";
  node("doing").textContent = status.doing;
  node("device").textContent = status.device;
  if (status.message || runs) node("message").textContent = status.message;
  facts();
  for (const camera of cameras) {
    const age = status.ages[camera.name];
    camera.figure.classList.toggle("stale", age === null || age > STALE);
    camera.caption.textContent = `${camera.name}${shownOf(camera, age)}`;
  }
}

function shownOf(camera, age) {
  if (age === null) return ": no picture yet";
  if (age > STALE) return `: nothing new for ${age.toFixed(1)} s`;
  return camera.rate === null ? "" : ` · ${camera.rate.toFixed(0)} pictures/s`;
}

function percent(share) {
  return share === null ? "–" : `${Math.round(100 * share)} %`;
}

function measured() {
  const state = status.state_of_arm;
  const long = (values) => (values?.every((value) => value !== null) ? Math.hypot(...values) : null);
  const said = (value, words) => (value === null || value === undefined ? "–" : words(value));
  const force = long(state?.force);
  return {
    "Force": said(force, (value) => `${value.toFixed(1)} N`),
    "Fingers": said(state?.opening, (value) => `${(1000 * value).toFixed(0)} mm`),
    "Hand x, y, z / mm": said(long(state?.position), () => state.position.map((value) => Math.round(1000 * value)).join(", ")),
  };
}

function facts() {
  const rows = {
    ...measured(),
    "Guard": status.health.mode,
    "Lease": status.health.owner || "nobody",
    "Operator": { you: "you", another: "another", "": "nobody" }[status.operator],
    "Latency": status.latency === null ? "–" : `${Math.round(1000 * status.latency)} ms`,
    "Step": status.steps,
    "Time left": status.time_left === null ? "–" : `${status.time_left.toFixed(0)} s`,
    "Return": status.episode_return.toFixed(2),
    "Success": status.recent ? `${percent(status.success_rate)} of ${status.recent}` : "no episode yet",
    "By a person": percent(status.intervention_rate),
    "Episodes": status.episodes,
    "Fingers sent to": status.grip === null ? "–" : `${Math.round(50 * (controls.grip + 1))} % open`,
  };
  node("facts").replaceChildren(...Object.entries(rows).map(([name, value]) => {
    const row = document.createElement("div");
    const title = document.createElement("dt");
    const text = document.createElement("dd");
    [title.textContent, text.textContent] = [name, value];
    text.className = name === "Latency" && status.latency > 0.2 ? "bad" : "";
    row.append(title, text);
    return row;
  }));
}

function pads() {
  const moves = MOVES.filter(([part]) => controls.names.includes(part));
  const buttons = moves.map((move) => pad(move[3], move[2], move));
  if (controls.names.includes("gripper_opening")) {
    const grip = button("gripper", GRIP);
    grip.addEventListener("click", () => (controls.grasp()));
    buttons.push(grip);
  }
  buttons.push(pad("take over, hold still", "Shift", null));
  node("pads").replaceChildren(...buttons, node("speed").closest("label"));
}

function button(words, key) {
  const made = document.createElement("button");
  const shown = document.createElement("kbd");
  shown.textContent = key.replace("Key", "");
  made.append(words, shown);
  return made;
}

function pad(words, key, move) {
  const made = button(words, key);
  const release = (event) => {
    controls.pads.delete(event.pointerId);
    made.classList.remove("on");
    tell();
  };
  made.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    made.setPointerCapture(event.pointerId);
    controls.pads.set(event.pointerId, move);
    made.classList.add("on");
    tell();
  });
  made.addEventListener("pointerup", release);
  made.addEventListener("pointercancel", () => {
    made.classList.remove("on");
    controls.drop(); // the system took the finger away: nobody let go
  });
  made.addEventListener("contextmenu", (event) => event.preventDefault());
  return made;
}

function tell() {
  if (controls.names.length) say({ kind: "hold", answers: status?.number, episode: controls.episode, ...controls.read() });
}

function label(name) {
  say({ kind: "label", label: name });
}

document.addEventListener("keydown", (event) => {
  if (event.code === "Space") {
    event.preventDefault();
    return stop();
  }
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
  controls.keys.add(event.code);
  if (event.code === GRIP) controls.grasp();
  if (event.code === "Enter") {
    event.preventDefault(); // else it also presses the button that has the focus
    say({ kind: "start" });
  }
  if (event.code in LABEL_KEYS) label(LABEL_KEYS[event.code]);
  tell();
});
document.addEventListener("keyup", (event) => {
  if (event.code === "Space") event.preventDefault();
  controls.keys.delete(event.code);
  tell();
});
window.addEventListener("blur", () => controls.drop());
document.addEventListener("visibilitychange", () => document.hidden && controls.drop());
node("stop").addEventListener("pointerdown", stop);
node("stop").addEventListener("click", stop);
node("start").addEventListener("click", () => say({ kind: "start" }));
node("follow").addEventListener("change", (event) => say({ kind: "follow", follows: event.target.checked }));
node("sit").addEventListener("click", () => say({ kind: "sit" }));
node("rearm").addEventListener("click", () => say({ kind: "rearm", number: status?.number })); // a stop that came later stays
for (const each of document.querySelectorAll("[data-label]")) each.addEventListener("click", () => label(each.dataset.label));
node("speed").addEventListener("input", (event) => {
  controls.speed = Number(event.target.value);
  node("speed-said").textContent = `${Math.round(100 * controls.speed)} %`;
});
setInterval(tell, PERIOD);
connect();
