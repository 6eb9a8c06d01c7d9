/** How fast this person labels: answers a minute over the last few minutes, pauses left out. */

const WINDOW = 180_000; // ms
const PAUSE = 30_000; // a longer gap is a break
const FEWEST = 5;

/** @type {number[]} */ let times = [];

/** @param {number} count @param {number} [now] */
export function paced(count, now = Date.now()) {
  for (let at = 0; at < count; at += 1) times.push(now);
  times = times.filter((time) => now - time < WINDOW);
}

/** Answers a minute; 0 while too few are known. */
export function pace() {
  if (times.length < FEWEST) return 0;
  const gaps = times.slice(1).map((time, at) => Math.min(PAUSE, time - times[at]));
  const minutes = gaps.reduce((sum, gap) => sum + gap, 0) / 60_000;
  return minutes > 0 ? gaps.length / minutes : 0;
}
