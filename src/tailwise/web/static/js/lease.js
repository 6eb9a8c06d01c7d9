/** Getting images from the server and keeping them: enough ahead, renewed while somebody works, given back at the end. */
import { post } from './api.js';
import { note } from './link.js';
import { store } from './state.js';
import { forgotten, open, skips, toOpen, withPictures, without } from './timeline.js';

const AHEAD = 7; // open images that are always at hand: the one on show, five that are loaded, one to come
const CHUNK = 10;
const LULL = 15_000; // ms during which a server that had nothing new is not asked again
const MOST = 64;
const RENEW = 120_000; // ms; a lease lasts longer than two of these
const IDLE = 300_000; // ms without a key or a touch: the images go back, for others to take

let asking = false;
let drained = 0; // when the server last had nothing new
let active = Date.now();
let given = false; // whether the images went back after a pause

/** @typedef {{moment: () => number, held: (since?: number) => Set<string>, claim: () => void, hungry: () => void}} Tabs */

/**
 * @param {object} needs
 * @param {Tabs} needs.tabs
 * @param {string} needs.tab
 * @param {() => Promise<Set<string>>} needs.pending   images with an answer under way
 * @param {() => string[]} needs.alsoHeld              images that this tab holds for the grid
 */
export function makeLease({ tabs, tab, pending, alsoHeld }) {
  /** Ask for more; with `renew`, also when there is enough; `first` is the image that is wanted most. @param {{renew?: boolean, first?: string}} [how] */
  async function refill({ renew = false, first } = {}) {
    const { annotator, begun, line, server } = store.get();
    const mine = open(line).length;
    const enough = mine >= AHEAD || (mine > 0 && Date.now() < drained + LULL);
    if (asking || given || !begun || !server?.round || (enough && !renew)) return;
    asking = true;
    try {
      const asked = tabs.moment();
      const taken = new Set([...tabs.held(), ...alsoHeld(), ...(await pending())]);
      const held = mine + taken.size; // the server gives these first, and renews them
      const count = Math.max(1, Math.min(MOST, held + (enough ? 0 : CHUNK)));
      const skipped = skips(store.get().line);
      const reply = await post('/api/lease', { annotator, count, tab, first });
      if (store.get().annotator === annotator) take(reply.images ?? [], new Set([...taken, ...tabs.held(asked), ...alsoHeld()]), skipped, !enough);
    } catch (trouble) {
      note(trouble);
    } finally {
      asking = false;
    }
  }

  /** @param {import('./types.js').Picture[]} images @param {Set<string>} taken images in other tabs, in the grid, or with an answer under way @param {Set<string>} skipped what the server knew as skipped when it was asked @param {boolean} more whether more were wanted */
  function take(images, taken, skipped, more) {
    const fresh = images.filter((image) => !taken.has(image.key));
    const line = forgotten(store.get().line, new Set(fresh.map((image) => image.key).filter((key) => skipped.has(key))));
    const longer = withPictures(line, fresh);
    const atEnd = line.cursor >= line.items.length;
    if (more && longer.items.length === line.items.length) drained = Date.now();
    const dry = open(longer).length === 0;
    const news = dry && !store.get().dry;
    const elsewhere = new Set([...tabs.held(), ...alsoHeld()]);
    store.set({ line: atEnd ? toOpen(longer) : longer, dry, elsewhere: elsewhere.size });
    if (longer.items.length > line.items.length) tabs.claim();
    if (news && elsewhere.size > 1) tabs.hungry();
  }

  /** Give images back. @param {string[]} images @param {RequestInit} [options] */
  async function release(images, options) {
    const { annotator } = store.get();
    if (!images.length || !annotator) return;
    try {
      await post('/api/release', { annotator, images: images.slice(0, MOST) }, options);
    } catch (trouble) {
      note(trouble); // leases end by themselves
    }
  }

  const mine = () => open(store.get().line).map((item) => item.key);

  /** Keep the images while somebody is at work, whether or not the tab is in front. */
  function tend() {
    if (Date.now() - active < IDLE) void refill({ renew: true });
    else if (!given) {
      given = true;
      void release(mine());
    }
  }

  /** Somebody is at work; after a long pause the images are asked for anew, since others may have them. */
  function stir() {
    active = Date.now();
    if (!given) return;
    given = false;
    store.set({ line: without(store.get().line, new Set(mine())) });
    void refill();
  }

  for (const name of ['keydown', 'pointerdown', 'wheel']) addEventListener(name, stir, { passive: true, capture: true });
  setInterval(tend, RENEW);

  return {
    refill,
    release,
    /** All open images, when the page is left. */
    releaseAll: () => release(mine(), { keepalive: true, signal: null }),
  };
}
