// The page of `robo-rl play`: shows the newest moment of an episode and steers the player.
// Texts of an environment are foreign: they become text nodes, never HTML.
"use strict";

const TOKEN = document.querySelector("meta[name=robo-token]").content;
const SMALL = 260; // [pixel] a picture below this is drawn with sharp pixels
const KEYS = { " ": "pause", r: "restart", n: "next" };
const at = (name) => document.getElementById(name);
let paused = false;

function number(value) {
  if (typeof value === "string") return value; // NaN, Infinity
  const size = Math.abs(value);
  const text = value === 0 ? "0" : size >= 1e6 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return text.replace("-", "−");
}

function say(text, kind = "") {
  if (at("said").textContent !== text) at("said").textContent = text;
  at("said").className = `said ${kind}`;
}

function show(moment) {
  at("title").textContent = moment.title;
  paused = moment.paused;
  at("pause").textContent = paused ? "Go on" : "Pause";
  if (moment.picture === undefined) return;
  if (at("picture").src !== moment.picture) at("picture").src = moment.picture;
  at("seed").textContent = moment.seed;
  at("step").textContent = moment.step;
  at("reward").textContent = number(moment.reward);
  at("return").textContent = number(moment.episode_return);
  at("success").textContent = moment.success === null ? "not judged" : moment.success ? "yes" : "no";
  const rate = moment.judged ? ` · ${moment.successes} of ${moment.judged} successes` : "";
  at("tally").textContent = `${moment.played} played${rate}`;
  const kind = moment.success === null ? "" : moment.success ? "good" : "bad";
  if (moment.stop_reason) say(`Ended: ${moment.stop_reason.replaceAll("_", " ")}`, kind);
  else say(paused ? "Paused" : "The policy acts");
}

async function command(name) {
  const wanted = name === "pause" && paused ? "go" : name;
  const headers = { "X-Robo-Token": TOKEN, "Content-Type": "application/json" };
  try {
    const answer = await fetch("/api/command", { method: "POST", headers, body: JSON.stringify({ command: wanted }) });
    if (!answer.ok) say((await answer.json()).error, "bad");
  } catch {
    say("The server does not answer. Was `robo-rl play` ended?", "bad");
  }
}

async function follow() {
  let after = "";
  for (;;) {
    try {
      const moment = await (await fetch(`/api/moment?after=${after}`)).json();
      after = moment.number;
      show(moment);
      await new Promise(requestAnimationFrame);
    } catch {
      say("The server does not answer. Was `robo-rl play` ended?", "bad");
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

for (const name of ["pause", "restart", "next"]) at(name).addEventListener("click", () => command(name));
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  if (event.key === " " && event.target instanceof HTMLButtonElement) return; // which the key presses
  event.preventDefault();
  command(KEYS[event.key]);
});
at("picture").addEventListener("load", () => at("picture").classList.toggle("small", at("picture").naturalWidth < SMALL));
follow();
