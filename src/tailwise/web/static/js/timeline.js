/**
 * The timeline: images already answered, the one on show, images to come. Pure functions; each gives a new timeline.
 * An image may be passed without an answer and is come back to; the last answer of an image stands.
 */
import { batchOf } from './ids.js';

/** @typedef {import('./types.js').Item} Item @typedef {import('./types.js').Picture} Picture */
/** @typedef {import('./types.js').Answer} Answer @typedef {import('./types.js').Timeline} Timeline */

/** @returns {Timeline} */
export const emptyTimeline = () => ({ items: [], cursor: 0, turn: 0 });

/** @param {Item|undefined} item @returns {Answer|null} */
export const standing = (item) => item?.answers.at(-1) ?? null;

/** @param {Timeline} line @returns {Item|null} */
export const shown = (line) => line.items[line.cursor] ?? null;

/** @param {Timeline} line @returns {Item[]} */
export const open = (line) => line.items.filter((item) => !item.answers.length);

/**
 * Earlier answers, oldest first, before everything else: they were given before all others.
 * @param {Timeline} line
 * @param {{key: string, image: string, seal?: string, kind: any, class_id: number|null}[]} past
 * @returns {Timeline}
 */
export function withPast(line, past) {
  const known = new Set(line.items.map((item) => item.key));
  /** @type {Map<string, Item>} */ const items = new Map();
  const given = line.items.flatMap((item) => item.answers.map((answer) => answer.turn));
  let turn = Math.min(line.turn + 1, ...given) - past.length - 1;
  for (const { key, image, seal, kind, class_id } of past) {
    if (known.has(image)) continue;
    const before = items.get(image)?.answers ?? [];
    items.delete(image); // an answer that was changed stands where it was changed
    items.set(image, { key: image, seal, answers: [...before, { key, kind, class_id, saved: true, turn: ++turn }] });
  }
  return { items: [...items.values(), ...line.items], cursor: line.cursor + items.size, turn: line.turn };
}

/** Images at the end; those known already stay where they are, as they are now. @param {Timeline} line @param {Picture[]} pictures @returns {Timeline} */
export function withPictures(line, pictures) {
  const known = new Set(line.items.map((item) => item.key));
  const fresh = pictures.filter((picture) => !known.has(picture.key)).map((picture) => ({ ...picture, answers: [] }));
  const now = new Map(pictures.map((picture) => [picture.key, picture]));
  const changed = (/** @type {Item} */ item) => now.has(item.key) && now.get(item.key)?.seal !== item.seal;
  return { ...line, items: [...line.items.map((item) => (changed(item) ? { ...item, ...now.get(item.key) } : item)), ...fresh] };
}

/** Images that were skipped, and the server knows it. @param {Timeline} line */
export function skips(line) {
  const isSkip = (/** @type {Answer|null} */ answer) => answer?.kind === 'skip' && answer.saved;
  return new Set(line.items.filter((item) => isSkip(standing(item))).map((item) => item.key));
}

/** Take images away with their answers: a new round asks for them again. @param {Timeline} line @param {Set<string>} keys @returns {Timeline} */
export function forgotten(line, keys) {
  const cursor = line.cursor - line.items.slice(0, line.cursor).filter((item) => keys.has(item.key)).length;
  return { ...line, items: line.items.filter((item) => !keys.has(item.key)), cursor };
}

/** Images to come next, before the one on show. @param {Timeline} line @param {Picture[]} pictures @returns {Timeline} */
export function withNext(line, pictures) {
  const keys = new Set(pictures.map((picture) => picture.key));
  const rest = without(line, keys);
  const answered = new Set(rest.items.map((item) => item.key));
  const fresh = pictures.filter((picture) => !answered.has(picture.key)).map((picture) => ({ ...picture, answers: [] }));
  return { ...rest, items: [...rest.items.slice(0, rest.cursor), ...fresh, ...rest.items.slice(rest.cursor)] };
}

/** Take open images away; the image on show stays on show if it may. @param {Timeline} line @param {Set<string>} keys @returns {Timeline} */
export function without(line, keys) {
  const gone = (/** @type {Item} */ item) => keys.has(item.key) && !item.answers.length;
  const items = line.items.filter((item) => !gone(item));
  const cursor = line.cursor - line.items.slice(0, line.cursor).filter(gone).length;
  return onOpen({ ...line, items, cursor });
}

/** @param {Timeline} line @param {number} step @returns {Timeline} */
export function moved(line, step) {
  return { ...line, cursor: Math.max(0, Math.min(line.items.length - 1, line.cursor + step)) };
}

/** @param {Timeline} line @param {string} key @returns {Timeline} */
export function movedTo(line, key) {
  const at = line.items.findIndex((item) => item.key === key);
  return at < 0 ? line : { ...line, cursor: at };
}

/** To the next image without an answer: after the cursor, else from the start, else past the end. @param {Timeline} line @returns {Timeline} */
export function toOpen(line) {
  const isOpen = (/** @type {Item} */ item) => !item.answers.length;
  const after = line.items.findIndex((item, at) => at >= line.cursor && isOpen(item));
  const any = after >= 0 ? after : line.items.findIndex(isOpen);
  return { ...line, cursor: any >= 0 ? any : line.items.length };
}

/** @param {Timeline} line */
const onOpen = (line) => (line.cursor < line.items.length ? line : toOpen(line));

/**
 * Record an answer; the image is added if the timeline does not have it yet.
 * @param {Timeline} line @param {Picture} picture @param {Omit<Answer, 'turn'|'saved'>} answer @returns {Timeline}
 */
export function answered(line, picture, answer) {
  const { key: image } = picture;
  const turn = line.turn + 1;
  const given = { ...answer, saved: false, turn };
  const known = line.items.some((item) => item.key === image);
  const items = known ? line.items : [{ ...picture, answers: [] }, ...line.items];
  const cursor = known ? line.cursor : line.cursor + 1;
  return { items: items.map((item) => (item.key === image ? { ...item, answers: [...item.answers, given] } : item)), cursor, turn };
}

/** Mark answers as committed. @param {Timeline} line @param {Set<string>} keys @returns {Timeline} */
export function committed(line, keys) {
  const mark = (/** @type {Answer} */ answer) => (keys.has(answer.key) ? { ...answer, saved: true } : answer);
  const touched = (/** @type {Item} */ item) => item.answers.some((answer) => keys.has(answer.key));
  return { ...line, items: line.items.map((item) => (touched(item) ? { ...item, answers: item.answers.map(mark) } : item)) };
}

/** What one undo takes back: the latest answer, with all that were given together with it. @param {Timeline} line @returns {{image: string, answer: Answer}[]} */
export function latest(line) {
  const all = line.items.flatMap((item) => item.answers.map((answer) => ({ image: item.key, answer })));
  if (!all.length) return [];
  const last = all.reduce((a, b) => (b.answer.turn > a.answer.turn ? b : a));
  return all.filter((one) => batchOf(one.answer.key) === batchOf(last.answer.key));
}

/** Take answers back. @param {Timeline} line @param {Set<string>} keys @returns {Timeline} */
export function takenBack(line, keys) {
  const keep = (/** @type {Answer} */ answer) => !keys.has(answer.key);
  return { ...line, items: line.items.map((item) => ({ ...item, answers: item.answers.filter(keep) })) };
}
