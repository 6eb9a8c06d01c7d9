/** What a person can say: a class, other, skip, undo, all of a grid, the end of a conflict. Shown at once, kept in the outbox. */
import { speak } from './dom.js';
import { newBatch, newKey } from './ids.js';
import { answerText, store } from './state.js';
import { answered, latest, moved, movedTo, shown, standing, takenBack, toOpen } from './timeline.js';
import { toast } from './toast.js';

/** @typedef {import('./types.js').Kind} Kind @typedef {import('./types.js').Op} Op */
/** @typedef {{image: string, seal?: string, kind: Kind, class_id: number|null}} Said */

const LONGEST = 600; // seconds: more than that was a break

let since = performance.now(); // when the image on show was painted
/** @type {string|null} */ let onShow = null;

store.watch((state) => [shown(state.line)?.key, state.painted], (state) => {
  onShow = shown(state.line)?.key ?? null;
  since = performance.now();
});
document.addEventListener('visibilitychange', () => void (since = performance.now()));

/** @param {{add: (ops: Op[]) => Promise<void>}} outbox @param {string} tab @param {{answered: (images: string[]) => void}} tabs */
export function makeAnswering(outbox, tab, tabs) {
  /** @param {Partial<Op> & {type: import('./types.js').OpType, key: string, image: string}} op @returns {Op} */
  const op = (op) => ({ annotator: store.get().annotator, tab, at: Date.now() * 1000, ...op });

  /** @param {Said[]} said @param {string[]} keys @param {number} seconds for each */
  function record(said, keys, seconds) {
    let { line } = store.get();
    said.forEach(({ image, seal, kind, class_id }, at) => (line = answered(line, { key: image, seal }, { key: keys[at], kind, class_id })));
    store.set({ line });
    tabs.answered(said.map((one) => one.image));
    return outbox.add(said.map((one, at) => op({ type: 'answer', key: keys[at], seconds, ...one })));
  }

  /** Answer the image on show, and go on; an image that nobody can see yet can only be skipped. @param {Kind} kind @param {number|null} [class_id] */
  function say(kind, class_id = null) {
    const { line, annotator, painted } = store.get();
    const item = shown(line);
    if (!item || !annotator) return;
    if (kind !== 'skip' && painted !== item.key) return speak('The image is still loading; answer when you can see it, or skip it.');
    const before = standing(item);
    const again = before?.kind === kind && before.class_id === class_id;
    if (!again) void record([{ image: item.key, seal: item.seal, kind, class_id }], [newKey()], pause());
    const now = store.get().line;
    // Looking back, the next step is forward; at work, it is the next image without an answer.
    store.set({ line: before ? moved(now, 1) : toOpen(now) });
    speak(answerText(store.get(), { kind, class_id }));
  }

  function pause() {
    return Math.min(LONGEST, Math.round(performance.now() - since) / 1000);
  }

  /** Many images at once, undone together. Returns when they are on this browser's disk. @param {Said[]} said */
  async function sayAll(said) {
    if (!said.length) return;
    const kept = record(said, newBatch(said.length), Math.round((1000 * pause()) / said.length) / 1000);
    store.set({ line: toOpen(store.get().line) });
    since = performance.now();
    await kept;
  }

  /** Take the latest answer back, and show its image again. Returns when that is on this browser's disk. */
  async function undo() {
    const { line } = store.get();
    const gone = latest(line);
    if (!gone.length) return toast('Nothing to undo');
    const [{ image, answer }] = gone;
    store.set({ line: movedTo(takenBack(line, new Set(gone.map((one) => one.answer.key))), image) });
    toast(`Undone: ${gone.length > 1 ? `${gone.length} answers` : `“${answerText(store.get(), answer)}”`}`);
    await outbox.add(gone.map((one) => op({ type: 'undo', key: newKey(), image: one.image, undoes: one.answer.key })));
  }

  /** Decide an image; gives the key of the settlement. @param {string} image @param {number|null} class_id null: other @param {'review'} [found_by] */
  function settle(image, class_id, found_by) {
    const kind = class_id === null ? 'settle-other' : 'settle-label';
    const key = newKey();
    void outbox.add([op({ type: 'settle', key, image, kind, class_id, found_by })]);
    return key;
  }

  /** Take a settlement back. Returns when that is on this browser's disk. @param {string} image @param {string} undoes its key */
  function unsettle(image, undoes) {
    return outbox.add([op({ type: 'undo', key: newKey(), image, undoes })]);
  }

  /** Flag, unflag or comment on an image. @param {string} image @param {'flag'|'unflag'|'comment'} kind @param {string} [text] */
  function annotate(image, kind, text = '') {
    return outbox.add([op({ type: 'note', key: newKey(), image, kind, text })]);
  }

  return { say, sayAll, undo, settle, unsettle, annotate, onShow: () => onShow };
}
