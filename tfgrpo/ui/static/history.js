// The history as one long list of which only what is in sight is there: windows come and go as
// one scrolls. Every row is as high as every other, so any place can be jumped to.
"use strict";

const list = document.querySelector(".versions.windowed");
if (list) {
  const { newest, window: size, start, at } = Object.fromEntries(
    Object.entries(list.dataset).map(([name, value]) => [name, Number(value)]),
  );
  const windows = new Map(); // number of a window → its element, or a promise of one
  const total = newest + 1;
  const first = list.querySelector("ol");
  let row;
  const measure = () => { // a row of a telephone is higher
    row = list.querySelector("li")?.getBoundingClientRect().height ?? row;
    list.style.height = `${total * row}px`;
    for (const [number, element] of windows) if (element) element.style.top = `${number * size * row}px`;
  };
  measure();
  list.classList.add("scrolled");
  document.querySelector(".paged").remove();

  const place = (element, from) => {
    element.className = "window";
    element.style.top = `${(newest - from) * row}px`;
    list.append(element);
  };

  const load = async (number) => {
    const from = newest - number * size;
    const answer = await fetch(`/history?from=${from}${at ? `&at=v${at}` : ""}`, { headers: { "HX-Request": "true" } });
    if (!answer.ok) {
      windows.delete(number);
      return;
    }
    const element = document.createElement("ol");
    element.innerHTML = await answer.text();
    if (!windows.has(number)) return;
    place(element, from);
    windows.set(number, element);
  };

  const look = () => {
    const top = -list.getBoundingClientRect().top;
    const low = Math.max(0, Math.floor((top - innerHeight) / row / size));
    const high = Math.min(Math.ceil(total / size) - 1, Math.floor((top + 2 * innerHeight) / row / size));
    for (const [number, element] of windows) {
      if (number >= low - 2 && number <= high + 2) continue;
      if (element) element.remove();
      windows.delete(number);
    }
    for (let number = low; number <= high; number++) {
      if (windows.has(number)) continue;
      windows.set(number, null);
      load(number);
    }
  };

  first.remove();
  if ((newest - start) % size === 0) {
    place(first, start);
    windows.set((newest - start) / size, first);
  }
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      look();
    });
  }, { passive: true });
  addEventListener("resize", () => {
    measure();
    look();
  });
  if (start !== newest) scrollTo(0, list.offsetTop + (newest - (at || start)) * row - innerHeight / 3);
  look();
}
