/** The screen where people's different answers are settled: as a class, or as "other". */
import { get, imageUrl } from './api.js';
import { avatar } from './cards.js';
import { classButton } from './class_buttons.js';
import { byId, counted, h, icon, keycap, nameTag } from './dom.js';
import { note } from './link.js';
import { answerText, isOwner, liveClasses, OWNER_ONLY, store } from './state.js';
import { toast } from './toast.js';
import { makeZoom } from './zoom.js';

const FEW = 6; // pairs of people that are shown one by one

/** @typedef {{annotator: string, kind: string, class_id: number|null}} Voice */
/** @typedef {{image: string, seal: string, answers: Voice[]}} Conflict */
/** @typedef {{key: string, image: string, kind: string, class_id: number|null}} Settlement */
/** @typedef {{items: Conflict[], settled: Settlement[], agreement: Agreement}} Reply */
/** @typedef {{first: string, second: string, cohen: number, images: number}} Pair */
/** @typedef {{cohen: number|null, pairs: Pair[], pair_count: number, krippendorff: number|null}} Agreement */

/**
 * @param {object} acts
 * @param {(image: string, class_id: number|null) => string} acts.settle       gives the settlement's key
 * @param {(image: string, key: string) => Promise<void>} acts.unsettle
 * @param {() => Promise<void>} acts.quiet   when nothing waits in the outbox any more
 */
export function makeConflicts({ settle, unsettle, quiet }) {
  const place = byId('conflicts');
  /** @type {Reply|null} */ let reply = null;
  /** @type {Set<string>} */ const settled = new Set(); // also those whose settlement is still under way
  /** @type {(Settlement & {annotator: string})[]} */ const made = []; // here, since the page was opened
  /** @type {Set<string>} */ const undone = new Set(); // keys
  let at = 0;
  const stage = h('div', { class: 'stage still' });
  const zoom = makeZoom(stage, { swiped: move, changed: () => {} });

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
    draw();
  }

  function draw() {
    const all = items();
    const state = store.get();
    at = Math.min(at, Math.max(0, all.length - 1));
    place.dataset.ready = String(all.length);
    const head = h('header', { class: 'view-head' }, h('h1', {}, all.length ? counted(all.length, 'conflict') : 'Conflicts'), latest() && isOwner(state) ? undoButton(undo) : '', agreementText(reply));
    const item = all[at];
    if (item) show(item);
    place.replaceChildren(head, item ? desk(state, item, stage, choose) : nothing(state), all.length > 1 ? queue(all, at, (to) => move(to - at)) : '');
  }

  /** @param {Conflict} item */
  function show({ image, seal }) {
    const photo = /** @type {HTMLImageElement} */ (h('img', { class: 'photo', src: imageUrl({ key: image, seal }, 1280), alt: 'The image on which people differ', 'data-key': image, draggable: false }));
    stage.replaceChildren(photo);
    zoom.attach(photo);
  }

  return {
    open,
    choose,
    undo,
    move,
    zoom: zoom.toggle,
    atPlace: (/** @type {number} */ index) => liveClasses(store.get())[index]?.id,
  };
}

/** @param {() => Promise<void>} undo */
function undoButton(undo) {
  return h('button', { class: 'plain', type: 'button', 'data-act': 'undo', title: 'Take the last settlement back (u)', onclick: () => void undo() }, icon('undo'), 'Undo', keycap('u'));
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

/** The image, who said what, and the classes to decide with. @param {import('./state.js').PageState} state @param {Conflict} item @param {HTMLElement} stage @param {(id: number|null) => void} choose */
function desk(state, item, stage, choose) {
  const owner = isOwner(state);
  const voices = item.answers.map((voice) =>
    h('li', {}, avatar(voice.annotator), nameTag(voice.annotator), h('button', { class: 'verdict', type: 'button', disabled: !owner, onclick: () => choose(voice.kind === 'label' ? voice.class_id : null), 'aria-label': `Settle as ${answerText(state, voice)}` }, nameTag(answerText(state, voice)))));
  const said = new Set(item.answers.map((voice) => voice.class_id));
  const classes = liveClasses(state).map((klass, at) => {
    const button = classButton(klass, at, choose);
    button.classList.toggle('said', said.has(klass.id));
    return button;
  });
  const other = h('button', { class: 'class', type: 'button', 'data-class': 'other', onclick: () => choose(null) }, keycap('o'), h('span', { class: 'name' }, 'Other'));
  return h('div', { class: 'desk' },
    stage,
    h('div', { class: 'verdicts' }, h('h2', {}, 'What was said'), h('ul', { class: 'voices' }, ...voices),
      ...(owner ? [h('h2', {}, 'What it is'), h('div', { class: 'classes', role: 'group', 'aria-label': 'Settle as' }, ...classes, other)] : [h('p', { class: 'soft', 'data-owner-only': '' }, 'The owner settles conflicts. ', OWNER_ONLY)])));
}

/** @param {Conflict[]} all @param {number} at @param {(to: number) => void} go */
function queue(all, at, go) {
  const thumbs = all.slice(0, 60).map((item, index) =>
    h('li', { class: 'thumb', ...(index === at ? { 'data-now': '' } : {}) },
      h('button', { type: 'button', onclick: () => go(index), 'aria-label': `Conflict ${index + 1}` }, h('img', { src: imageUrl({ key: item.image, seal: item.seal }, 160), alt: '', loading: 'lazy' }))));
  return h('ol', { class: 'strip', 'aria-label': 'All conflicts' }, ...thumbs);
}

/** @param {import('./state.js').PageState} state */
function nothing(state) {
  const shared = (state.server?.settings?.overlap ?? 1) > 1;
  const text = shared ? 'Where several people answer the same image and differ, it appears here.' : 'Each image is shown to one person, so people can only differ where an image was answered again.';
  return h('div', { class: 'message' }, h('div', { class: 'emblem' }, icon('check')), h('h2', {}, 'Nothing to settle'), h('p', { class: 'soft' }, text));
}
