/** The view where people's different answers are settled: each answer is a button, any other class is behind “/”. */
import { get } from './api.js';
import { byId, counted, h, nameTag } from './dom.js';
import { ownPlaceOf, placeOf } from './keys.js';
import { note } from './link.js';
import { makeAnotherClass, makeLargeImage, thumbStrip, undoButton, verdictButton, viewMessage } from './review_desk.js';
import { answerText, isOwner, liveClasses, OWNER_ONLY, store } from './state.js';
import { toast } from './toast.js';

const FEW = 6; // pairs of people that are shown one by one

/** @typedef {{annotator: string, kind: string, class_id: number|null}} Voice */
/** @typedef {{image: string, seal: string, answers: Voice[]}} Conflict */
/** @typedef {{key: string, image: string, kind: string, class_id: number|null}} Settlement */
/** @typedef {{items: Conflict[], settled: Settlement[], agreement: Agreement}} Reply */
/** @typedef {{first: string, second: string, cohen: number, images: number}} Pair */
/** @typedef {{cohen: number|null, pairs: Pair[], pair_count: number, krippendorff: number|null}} Agreement */

/** @param {{answering: any, quiet: () => Promise<void>}} session `quiet`: when nothing waits in the outbox any more */
export function makeView({ answering: { settle, unsettle }, quiet }) {
  const place = byId('conflicts');
  /** @type {Reply|null} */ let reply = null;
  /** @type {Set<string>} */ const settled = new Set(); // also those whose settlement is still under way
  /** @type {(Settlement & {annotator: string})[]} */ const made = []; // here, since the page was opened
  /** @type {Set<string>} */ const undone = new Set(); // keys
  let at = 0;
  const large = makeLargeImage('The image on which people differ', move);
  const another = makeAnotherClass(choose);

  const items = () => (reply?.items ?? []).filter((item) => !settled.has(item.image));

  async function open() {
    try {
      reply = await get('/api/conflicts', { annotator: store.get().annotator });
    } catch (trouble) {
      note(trouble);
    }
    draw();
  }

  /** @param {number|null} class_id */
  function choose(class_id) {
    const item = items()[at];
    if (!item) return;
    if (!isOwner(store.get())) return toast(OWNER_ONLY);
    const said = { image: item.image, kind: class_id === null ? 'other' : 'label', class_id };
    settled.add(item.image);
    made.push({ ...said, key: settle(item.image, class_id), annotator: store.get().annotator });
    toast(`Settled as “${answerText(store.get(), said)}”`);
    at = Math.min(at, Math.max(0, items().length - 1));
    draw();
  }

  /** The latest settlement of this person that stands, also one from before a reload. @returns {Settlement|undefined} */
  function latest() {
    const before = (reply?.settled ?? []).filter((one) => !made.some(({ key }) => key === one.key));
    const own = made.filter(({ annotator }) => annotator === store.get().annotator).reverse();
    return [...own, ...before].find(({ key }) => !undone.has(key));
  }

  /** Take the latest settlement back, and show its image again. */
  async function undo() {
    const last = latest();
    if (!isOwner(store.get())) return toast(OWNER_ONLY);
    if (!last) return toast('No settlement to undo');
    undone.add(last.key);
    settled.delete(last.image);
    toast(`Undone: settled as “${answerText(store.get(), last)}”`);
    goTo(last.image);
    await unsettle(last.image, last.key);
    await quiet(); // until then the server may not count it among the conflicts
    await open();
    goTo(last.image);
  }

  /** @param {string} image */
  function goTo(image) {
    at = Math.max(0, items().findIndex((item) => item.image === image));
    draw();
  }

  /** @param {number} step */
  function move(step) {
    at = Math.max(0, Math.min(items().length - 1, at + step));
    another.close();
    draw();
  }

  function draw() {
    const all = items();
    const state = store.get();
    at = Math.min(at, Math.max(0, all.length - 1));
    place.dataset.ready = String(all.length);
    const undoing = latest() && isOwner(state) ? undoButton(() => void undo(), 'Take the last settlement back') : '';
    const head = h('header', { class: 'view-head' }, h('h1', {}, all.length ? counted(all.length, 'conflict') : 'Conflicts'), undoing, agreementText(reply));
    const item = all[at];
    if (item) large.show(item);
    place.replaceChildren(head, item ? desk(state, item) : nothing(state), all.length > 1 ? thumbStrip(all, { label: 'Conflicts', at, go: (to) => move(to - at) }) : '');
  }

  /** The image, and who said what: each answer is the button that settles it. @param {import('./state.js').PageState} state @param {Conflict} item */
  function desk(state, item) {
    const buttons = opinions(item).map(({ kind, class_id, people }, index) => verdictButton({
      key: index < 10 ? String((index + 1) % 10) : '', name: kind === 'label' ? String(class_id) : 'other',
      text: [nameTag(answerText(state, { kind, class_id }))], detail: [nameTag(people.join(', '))], act: () => choose(class_id),
    }));
    const owner = isOwner(state);
    for (const button of buttons) button.toggleAttribute('disabled', !owner);
    return h('div', { class: 'desk' }, large.element,
      h('div', { class: 'verdicts' }, h('p', { class: 'finding' }, owner ? 'Whose answer is right?' : 'What was said'), ...buttons,
        owner ? another.element : h('p', { class: 'soft', 'data-owner-only': '' }, 'The owner settles conflicts. ', OWNER_ONLY)));
  }

  return {
    open,
    keys: {
      /** @param {KeyboardEvent} event */
      digit: (event) => {
        const own = ownPlaceOf(event); // digits are the answers, a class's own key is the class
        if (own !== null) return choose(liveClasses(store.get())[own].id);
        const said = items()[at] && opinions(items()[at])[Number(placeOf(event))];
        if (said) choose(said.class_id);
      },
      other: () => choose(null), filter: () => items()[at] && another.open(), left: () => move(-1), right: () => move(1), zoom: large.zoom,
      undo: () => void undo(),
    },
  };
}

/** What was said, each answer once, with its people; most people first. @param {Conflict} item */
function opinions(item) {
  /** @type {Map<string, {kind: string, class_id: number|null, people: string[]}>} */ const by = new Map();
  for (const { annotator, kind, class_id } of item.answers) {
    const key = `${kind} ${class_id}`;
    by.set(key, { kind, class_id, people: [...(by.get(key)?.people ?? []), annotator] });
  }
  return [...by.values()].sort((a, b) => b.people.length - a.people.length);
}

/** @param {Reply|null} reply */
function agreementText(reply) {
  const { cohen = null, krippendorff = null, pairs = [], pair_count: count = 0 } = reply?.agreement ?? {};
  if (cohen === null && krippendorff === null) return '';
  const kappa = count > 1 ? `Cohen’s κ, mean of ${count} pairs` : 'Cohen’s κ';
  const of = count > 1 ? 'each two people' : pairs.map((pair) => `${pair.first} and ${pair.second}`).join('');
  return h('p', { class: 'stats' },
    figure(kappa, cohen, `Agreement of ${of} beyond chance: 1 is perfect, 0 is chance`),
    ...(count > 1 && count <= FEW ? pairs.map((pair) => figure(`${pair.first} – ${pair.second}`, pair.cohen, `Cohen’s κ over ${counted(pair.images, 'image')} that both answered`)) : []),
    figure('Krippendorff’s α', krippendorff, 'Agreement of all people beyond chance: 1 is perfect, 0 is chance'));
}

/** @param {string} name @param {number|null} value @param {string} title */
function figure(name, value, title) {
  return value === null ? '' : h('span', { class: 'stat', title }, h('b', {}, value.toFixed(2).replace('-', '−')), ' ', nameTag(name));
}

/** @param {import('./state.js').PageState} state */
function nothing(state) {
  const shared = (state.server?.settings?.overlap ?? 1) > 1;
  const text = shared ? 'Where several people answer the same image and differ, it appears here.' : 'Each image is shown to one person, so people can only differ where an image was answered again.';
  return viewMessage('check', 'Nothing to settle', text);
}
