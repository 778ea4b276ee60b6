// Keeps the page up to date. Everything on it works without this script.
"use strict";

const policy = window.trustedTypes?.createPolicy("page", { createHTML: (text) => text });
let known = new Set();

function newsOf(root) {
  return new Map([...root.querySelectorAll("[data-news]")].map((each) => [each.id, each.dataset.news]));
}

// A new question is said, and shown on the desktop where the person wants that and looks elsewhere.
function tellNews() {
  const found = newsOf(document);
  for (const [id, words] of found) {
    if (known.has(id)) continue;
    const news = document.getElementById("news");
    if (news) news.textContent = `New question: ${words}`;
    if (document.hidden && window.Notification?.permission === "granted") {
      const shown = new Notification("coretools-mcp asks", { body: words, tag: id });
      shown.onclick = () => window.focus();
    }
  }
  known = new Set(found.keys());
}

// Put in what the server shows now, but nothing in place of what the person is at.
async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return location.reload();
  const text = await answer.text();
  const fresh = new DOMParser().parseFromString(policy ? policy.createHTML(text) : text, "text/html");
  document.title = fresh.title;
  document.querySelector("nav")?.replaceWith(fresh.querySelector("nav"));
  for (const live of document.querySelectorAll("[data-live]")) {
    const now = fresh.querySelector(`[data-live="${live.dataset.live}"]`);
    if (!now) continue;
    if (live.contains(document.activeElement) && live !== document.activeElement) merge(live, now);
    else live.replaceChildren(...now.childNodes);
  }
  tellNews();
}

// The person is in one of several parts: it stays as it is for as long as it is still there; the others follow.
function merge(live, now) {
  const held = [...live.children].find((child) => child.contains(document.activeElement));
  const same = held?.id && now.querySelector(`#${CSS.escape(held.id)}`);
  if (!held?.id) return;
  if (!same) {
    if (held.querySelector(".ended")) return;
    const ended = document.createElement("p");
    ended.className = "ended reason";
    ended.textContent = "This question does not wait any more.";
    held.prepend(ended);
    for (const button of held.querySelectorAll("button")) button.disabled = true;
    return;
  }
  const [before, behind] = [[], []];
  let isBefore = true;
  for (const child of now.children) {
    if (child === same) isBefore = false;
    else (isBefore ? before : behind).push(child);
  }
  for (const child of [...live.children]) if (child !== held) child.remove();
  held.before(...before);
  held.after(...behind);
}

function listen() {
  const events = new EventSource("/events");
  let isFirst = true;
  events.onmessage = () => {
    if (!isFirst) refresh();
    isFirst = false;
  };
  events.onerror = () => { isFirst = false; };
  return events;
}

document.querySelector("form[data-at-once]")?.submit();
if (document.getElementById("news")) {
  known = new Set(newsOf(document).keys());
  let events = listen();
  // A browser has six connections to a host: pages that nobody sees leave them to others, but for the questions.
  document.addEventListener("visibilitychange", () => {
    if (location.pathname === "/") return;
    if (document.hidden) events.close();
    else { events = listen(); refresh(); }
  });
  const notify = document.getElementById("notify");
  if (window.Notification?.permission === "default") {
    notify.hidden = false;
    notify.onclick = async () => { notify.hidden = (await Notification.requestPermission()) !== "default"; };
  }
  setInterval(() => {
    for (const each of document.querySelectorAll("[data-seconds]")) {
      each.dataset.seconds = Math.max(0, each.dataset.seconds - 1);
      each.textContent = `${each.dataset.seconds} s`;
    }
  }, 1000);
  if (location.hash === "#next") document.querySelector("article h2, #next")?.focus();
}
