/** One person at work on one campaign: outbox, tabs, leases and answers, made when the server has said which campaign it is. */
import { makeAnswering } from './answering.js';
import { get, post } from './api.js';
import { openDisk } from './disk.js';
import { randomHex } from './ids.js';
import { makeLease } from './lease.js';
import { look, note } from './link.js';
import { makeOutbox } from './outbox.js';
import { paced } from './pace.js';
import { pastOf } from './past.js';
import { store } from './state.js';
import { makeTabs } from './tabs.js';
import { committed, emptyTimeline, movedTo, open, shown, toOpen, withPast, without } from './timeline.js';
import { toast } from './toast.js';

/** @typedef {import('./types.js').Op} Op @typedef {import('./types.js').Refusal} Refusal */

const REMEMBERED = 50; // answers that are asked for at once after a reload; those before them when somebody looks back at them
const FARTHEST = 20; // pages of answers to look through for the image that was on show
const NEAR = 12; // answers before the image on show
const PLACE = 'tailwise.shown.'; // where this tab keeps which image it shows
const ORPHANS = 20_000; // ms between two looks for answers that other tabs have left behind
const tab = randomHex(8);

/** @param {string} campaign @param {() => string[]} alsoHeld images that this tab holds in addition to the timeline */
export async function startSession(campaign, alsoHeld) {
  const tabs = makeTabs({
    campaign, tab,
    mine: () => ({ annotator: store.get().annotator, images: [...open(store.get().line).map((item) => item.key), ...alsoHeld()] }),
    yielded: drop,
    answered: drop,
    hungry: share,
    changed: () => void (store.get().dry && lease.refill()),
    left: (living) => void (store.get().begun && outbox.adopt(living)),
  });
  // A page that was left while it was making the database keeps it shut as long as the browser keeps the page;
  // a word on the channel makes the browser drop such a page, so it comes before the disk.
  const living = await tabs.rollCall();
  const disk = await openDisk(campaign);
  const outbox = makeOutbox({ disk, post, tab, saved, refused, changed });
  const pending = () => outbox.answersOf(store.get().annotator);
  const lease = makeLease({ tabs, tab, pending, alsoHeld });
  const answering = makeAnswering(outbox, tab, tabs);
  /** As the disk has them: others may have been refused, or sent again, while this was asked. */
  const showRefusals = async () => store.set({ refusals: await outbox.refusals() });
  store.set({ lasting: disk.lasting });
  await showRefusals();

  /** @param {string[]} images that another tab holds or has answered */
  function drop(images) {
    const { line } = store.get();
    const left = without(line, new Set(images));
    if (left.items.length === line.items.length) return;
    store.set({ line: left });
    void lease.refill();
  }

  /** Leave the farther half of the images to another tab of this person. */
  function share() {
    const mine = open(store.get().line).map((item) => item.key);
    const farther = mine.slice(Math.max(1, Math.ceil(mine.length / 2)));
    store.set({ line: without(store.get().line, new Set(farther)) });
    tabs.claim();
  }

  /** @param {Op[]} ops that the server has committed */
  function saved(ops) {
    const { line, saved: before } = store.get();
    store.set({ line: committed(line, new Set(ops.map((op) => op.key))), saved: before + ops.length });
    paced(ops.filter((op) => op.type === 'answer').length);
    tabs.concluded(ops.filter((op) => op.type !== 'note').map((op) => op.image)); // a note says nothing of the image's answer
    // An image whose answer was taken back is to be held again.
    void lease.refill({ renew: ops.some((op) => op.type === 'undo') });
    void look();
  }

  /** @param {Refusal[]} refusals */
  function refused(refusals) {
    tabs.concluded(refusals.filter(({ op }) => op.type !== 'note').map(({ op }) => op.image));
    const undone = refusals.filter(({ op }) => op.type === 'undo');
    for (const { message } of undone) toast(`Not undone: ${message}`, { tone: 'bad', lasts: 6_000 });
    void showRefusals();
  }

  /** @param {number} waiting @param {Error|null} trouble @param {number} unkept */
  function changed(waiting, trouble, unkept) {
    store.set({ waiting, lasting: disk.lasting && !unkept });
    if (trouble && !(trouble instanceof DOMException)) note(trouble); // after a fault of the disk the outbox tries again
  }

  /** Begin, or begin anew under another name: earlier answers first, then images. */
  async function resume() {
    await outbox.adopt(living);
    const { annotator } = store.get();
    const waiting = (await outbox.waiting()).filter((op) => op.annotator === annotator);
    const [key = '', of = ''] = (sessionStorage.getItem(PLACE + campaign) ?? '').split(' ', 2);
    const before = of === encodeURIComponent(annotator) ? key : ''; // the image on show before a reload
    const history = await get('/api/history', { annotator, limit: REMEMBERED }).catch(note);
    if (store.get().annotator !== annotator) return;
    const past = pastOf(history?.items ?? [], waiting);
    oldest = endOf(history?.items);
    store.set({ line: toOpen(withPast(emptyTimeline(), /** @type {any} */ (past))), dry: false, begun: true });
    await lease.refill({ first: before || undefined });
    const { turn } = store.get().line;
    for (let pages = 0; pages < FARTHEST && before && oldest !== null && !has(before); pages += 1) await askForOlder();
    const idle = store.get().annotator === annotator && store.get().line.turn === turn; // nothing was answered meanwhile
    if (before && idle) store.set({ line: movedTo(store.get().line, before) });
  }

  /** @type {number|null} */ let oldest = null; // the event before which there are more answers to look back at
  let looking = false;
  const has = (/** @type {string} */ key) => store.get().line.items.some((item) => item.key === key);
  const endOf = (/** @type {{event: number}[]} */ items = []) => (items.length < REMEMBERED ? null : items[items.length - 1].event);
  /** Answers from before those that are known. */
  async function askForOlder() {
    const { annotator } = store.get();
    if (looking || oldest === null) return;
    looking = true;
    try {
      const { items = [] } = await get('/api/history', { annotator, limit: REMEMBERED, before: oldest });
      if (store.get().annotator !== annotator) return;
      oldest = endOf(items);
      store.set({ line: withPast(store.get().line, items.slice().reverse()) });
    } catch (trouble) {
      oldest = null; // not again and again
      note(trouble);
    } finally {
      looking = false;
    }
  }
  /** Get them before somebody reaches them, step by step or by undoing one after the other. */
  function lookBack() {
    const { line } = store.get();
    const answered = line.items.filter((item) => item.answers.length).length;
    if (Math.min(line.cursor, answered) <= NEAR) void askForOlder();
  }
  store.watch((state) => [state.line], () => void lookBack());
  store.watch((state) => [shown(state.line)?.key, state.annotator, state.begun], ({ line, annotator, begun }) => {
    const key = shown(line)?.key;
    if (!begun || !annotator) return;
    if (key) sessionStorage.setItem(PLACE + campaign, `${key} ${encodeURIComponent(annotator)}`);
    else sessionStorage.removeItem(PLACE + campaign);
  });

  /** @param {string} annotator */
  async function rename(annotator) {
    if (annotator === store.get().annotator) return;
    if (store.get().annotator) await lease.releaseAll();
    oldest = null;
    store.set({ annotator, line: emptyTimeline(), dry: false, begun: false });
    await look();
    await resume();
  }

  // Another round: images of the old one that nobody answered are no longer asked for.
  /** @type {number|undefined} */ let round = store.get().server?.round?.id;
  store.watch((state) => [state.server?.round?.id], ({ server, line }) => {
    if (!server || server.round?.id === round) return;
    round = server.round?.id;
    store.set({ line: without(line, new Set(open(line).map((item) => item.key))), dry: false });
    void lease.refill();
  });
  // The server is back, or others have given images back.
  store.watch((state) => [state.link, state.server], ({ link, waiting }) => {
    if (link !== 'up') return;
    if (waiting) void outbox.flush();
    void lease.refill();
  });
  // While the server was away, images may have got other bytes.
  store.watch((state) => [state.link], ({ link }) => link === 'up' && void lease.refill({ renew: true }));
  // What a tab that crashed has left behind.
  setInterval(async () => (await outbox.strays()) && void outbox.adopt(await tabs.rollCall()), ORPHANS);
  addEventListener('pagehide', () => {
    tabs.leave();
    void lease.releaseAll();
  });
  addEventListener('pageshow', (event) => event.persisted && location.reload());

  /** When nothing waits any more. @returns {Promise<void>} */
  const quiet = async () => {
    while (store.get().waiting) await new Promise((resolve) => setTimeout(resolve, 40));
  };

  return { answering, lease, resume, rename, quiet, outbox, showRefusals, tabs };
}
