// The page of `robo-rl watch`: takes the parts that the server draws, and replaces those that have changed.
// The server escapes every text of a run, as for reports; the page's policy allows no script in them.
"use strict";

const PERIOD = 2000; // [ms] between two looks
const shown = new Map(); // part -> its HTML
const at = (id) => document.getElementById(id);

function say(text, kind = "") {
  if (at("live").textContent !== text) at("live").textContent = text;
  at("live").className = `live ${kind}`;
}

function place(html) {
  const found = document.createElement("template");
  found.innerHTML = html;
  const parts = [...found.content.querySelectorAll("[data-part]")];
  const names = new Set(parts.map((part) => part.dataset.part));
  for (const old of at("parts").querySelectorAll("[data-part]")) {
    if (names.has(old.dataset.part)) continue;
    shown.delete(old.dataset.part);
    old.remove();
  }
  let before = null;
  for (const part of parts) {
    const name = part.dataset.part;
    const text = part.outerHTML;
    const old = at("parts").querySelector(`:scope > [data-part="${CSS.escape(name)}"]`);
    if (old && shown.get(name) === text) { before = old; continue; }
    for (const one of part.querySelectorAll("details[id]")) one.open = document.getElementById(one.id)?.open ?? one.open;
    shown.set(name, text);
    if (old && replaceKeyed(old, part)) { before = old; continue; }
    if (old) old.replaceWith(part);
    else if (before) before.after(part);
    else at("parts").prepend(part);
    before = part;
  }
}

// Replaces the films that have changed, so that the others play on; false if there are others than before.
function replaceKeyed(old, part) {
  const [were, are] = [old, part].map((one) => [...one.querySelectorAll("[data-key]")]);
  const keys = (list) => JSON.stringify(list.map((one) => one.dataset.key));
  if (!are.length || keys(were) !== keys(are)) return false;
  are.forEach((one, i) => {
    if (shown.get(one.dataset.key) === one.outerHTML) return;
    shown.set(one.dataset.key, one.outerHTML);
    were[i].replaceWith(one);
  });
  return true;
}

async function look() {
  try {
    const answer = await fetch("/api/view");
    if (!answer.ok) throw new Error((await answer.json()).error);
    place(await answer.text());
    say("live", "now");
  } catch (error) {
    say(error instanceof TypeError ? "The server does not answer. Was `robo-rl watch` ended?" : String(error.message), "gone");
  }
}

async function follow() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((resolve) => setTimeout(resolve, PERIOD));
  }
}

follow();
