// What a page does beyond what the browser does alone. Pages read without it.
"use strict";

// A form that cannot be undone asks first.
document.addEventListener("submit", (event) => {
  const asked = event.target.dataset.confirm;
  if (asked && !window.confirm(asked)) event.preventDefault();
});

// A control that changes what is listed sends its form.
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-sends]")) event.target.form.requestSubmit();
});

// Single keys can be switched off, for whoever speaks to a browser or brushes a keyboard; the browser
// remembers it. Without a script there are none, so the page shows them only where they work.
const keys = {
  get on() {
    return localStorage.getItem("tfgrpo-keys") !== "off";
  },
  set on(value) {
    localStorage.setItem("tfgrpo-keys", value ? "on" : "off");
  },
  show() {
    document.documentElement.classList.toggle("keys", keys.on);
    const button = document.querySelector("#keys");
    button.hidden = false;
    button.setAttribute("aria-pressed", String(keys.on));
  },
};
document.querySelector("#keys").addEventListener("click", () => {
  keys.on = !keys.on;
  keys.show();
});
keys.show();

// Keys: an element says in data-key which one presses it. Not while somebody types. A key that is
// held presses once: what it would press next is on a page that nobody has seen.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (!keys.on) return;
  const pressed = [...document.querySelectorAll("[data-key]")].find(
    (element) => element.dataset.key === event.key && !element.disabled && element.offsetParent !== null,
  );
  if (!pressed) return;
  event.preventDefault();
  if (pressed.matches("input[type=search], input[type=text], textarea")) pressed.focus();
  else pressed.click();
});

// What is live: the server sends the part of the page anew whenever it has changed.
for (const place of document.querySelectorAll("[data-live]")) {
  const stream = new EventSource(place.dataset.live);
  stream.addEventListener("part", (event) => {
    const open = [...place.querySelectorAll("details")].map((one) => one.open);
    const focused = place.contains(document.activeElement);
    if (focused && document.activeElement.matches("a, summary")) return; // somebody is about to go on
    place.innerHTML = event.data;
    place.querySelectorAll("details").forEach((one, number) => { one.open = open[number] ?? false; });
  });
  stream.addEventListener("words", (event) => { // a text for each place that grows
    JSON.parse(event.data).forEach((more, number) => {
      if (more) place.querySelector(`[data-words="${number}"]`)?.append(more);
    });
  });
  stream.addEventListener("over", () => {
    stream.close();
    window.location.reload(); // what can be done with it is another thing now
  });
  window.addEventListener("pagehide", () => stream.close());
}

// A button that needs a script is there where scripts are.
for (const button of document.querySelectorAll("[data-opens], [data-chooses]")) button.hidden = false;

// A button that chooses the same for everything in its form.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-chooses]");
  if (!button) return;
  for (const one of button.form.querySelectorAll(`input[type=radio][value=${button.dataset.chooses}]`)) one.checked = true;
});

// A reason for turning a change down turns it down.
document.addEventListener("input", (event) => {
  if (!event.target.matches(".why-of") || !event.target.value) return;
  event.target.closest("fieldset").querySelector("input[value=reject]").checked = true;
});

// A button that opens what is folded, and goes to the first text in it.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-opens]");
  if (!button) return;
  const folded = document.querySelectorAll(button.dataset.opens);
  for (const one of folded) one.open = true;
  if (folded.length) folded[0].querySelector("textarea, input").focus();
});
