/** The link to the server: up, away, without its campaign's file, or the token no longer fits; asks for the state again and again. */
import { Away, Refused, get } from './api.js';
import { store } from './state.js';

const CALM = 5_000; // ms between two looks
const BUSY = 800; // while a batch is being chosen, or the server is away
const WAITING = 2_000; // while there is no image for this person
const HIDDEN = 20_000;

/** @type {ReturnType<typeof setTimeout>|undefined} */ let timer;
/** @type {Promise<void>|null} */ let asking = null;
let stale = false;

/** Take a failure of a request in: what the person should know becomes state; faults of the page itself go on. @param {unknown} trouble */
export function note(trouble) {
  if (trouble instanceof Away) store.set({ link: 'away' });
  else if (!(trouble instanceof Refused)) throw trouble;
  else if (trouble.denied) store.set({ link: 'denied', trouble: trouble.message });
  else if (trouble.replaced) store.set({ link: 'replaced', trouble: trouble.message });
  else store.set({ trouble: trouble.message });
}

async function ask() {
  const { annotator, saved } = store.get();
  try {
    const server = await get('/api/state', annotator ? { annotator } : {});
    if (store.get().annotator === annotator) store.set({ server, seen: saved, link: 'up', trouble: '' });
  } catch (trouble) {
    note(trouble);
    // A server that fails at this question cannot be worked with, whatever the reason.
    if (trouble instanceof Refused && !trouble.denied && !trouble.replaced) store.set({ link: 'away' });
  }
}

/** Ask for the state now. One request at a time; a wish during one is fulfilled after it. @returns {Promise<void>} */
export function look() {
  stale = Boolean(asking);
  asking ??= ask().finally(() => {
    asking = null;
    if (stale) return look();
    plan();
  });
  return asking;
}

function plan() {
  clearTimeout(timer);
  const { link, server, dry } = store.get();
  const quick = link === 'away' || link === 'replaced' || server?.job?.state === 'running';
  timer = setTimeout(look, document.hidden ? HIDDEN : quick ? BUSY : dry ? WAITING : CALM);
}

export function keepLooking() {
  document.addEventListener('visibilitychange', () => document.hidden || look());
  addEventListener('online', () => look());
  store.watch((state) => [state.dry, state.link, state.server?.job?.state], plan);
}
