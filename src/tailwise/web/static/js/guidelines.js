/** Guidelines: what belongs to each class, with examples; next to a class that is pointed at or focused, and all of them with "i". */
import { get, imageUrl } from './api.js';
import { byId, h, icon, keycap, nameTag } from './dom.js';
import { note } from './link.js';
import { isOwner, keyOf, liveClasses, store } from './state.js';

/** @typedef {{image: string, seal: string}} Shown */
/** @typedef {import('./types.js').Klass & {key: string, description: string, examples: Shown[], labelled: number}} Details */

/** @type {Map<number, Details>} */ let known = new Map();
let version = -1;

/** The classes as the server has them now. @param {{items: Details[], version: number}} reply */
export function learnClasses(reply) {
  known = new Map(reply.items.map((one) => [one.id, one]));
  version = reply.version;
}

/** All classes with their guidelines, asked for again when one has changed. @returns {Promise<Details[]>} */
export async function classDetails() {
  if ((store.get().server?.classes_version ?? 0) !== version) learnClasses(await get('/api/classes'));
  return [...known.values()];
}

/** Small pictures of a class. @param {Details} klass */
export function examplePictures(klass) {
  const pictures = klass.examples.map(({ image, seal }, at) => h('img', { src: imageUrl({ key: image, seal }, 160), alt: `Example ${at + 1} of ${klass.name}`, loading: 'lazy' }));
  return pictures.length ? h('div', { class: 'examples' }, ...pictures) : '';
}

/** @param {Details|undefined} klass */
const hasGuide = (klass) => Boolean(klass && (klass.description || klass.examples.length));

export function makeGuidelines() {
  const place = byId('classes');
  const card = h('div', { class: 'guide-card', id: 'guide-card', role: 'note', hidden: true });
  const button = h('button', { class: 'guide-open', type: 'button', hidden: true, title: 'Guidelines (i)', onclick: open }, icon('help'), h('span', {}, 'Guidelines'), keycap('i'));
  const body = h('div', { class: 'guide-list' });
  const dialog = /** @type {HTMLDialogElement} */ (h('dialog', { class: 'sheet guide', 'aria-labelledby': 'guide-title' },
    h('header', {}, h('h2', { id: 'guide-title' }, 'Guidelines'), h('button', { class: 'quiet', type: 'button', 'aria-label': 'Close', onclick: () => dialog.close() }, icon('close'))), body));
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  dialog.addEventListener('keydown', (event) => {
    if (event.key !== 'i') return;
    event.stopPropagation(); // or the page would open it again
    dialog.close();
  });
  document.body.append(card, dialog);
  place.before(button);

  store.watch((state) => [state.server?.classes_version], async ({ server }) => {
    if (!server) return;
    try {
      const all = await classDetails();
      button.hidden = !all.some((klass) => !klass.retired && hasGuide(klass));
      if (dialog.open) draw();
    } catch (trouble) {
      note(trouble);
    }
  });

  /** @param {EventTarget|null} target */
  function show(target) {
    const under = target instanceof Element ? target.closest('.class') : null;
    const klass = under instanceof HTMLElement ? known.get(Number(under.dataset.class)) : undefined;
    card.hidden = !klass || klass.retired || !hasGuide(klass);
    if (card.hidden || !klass || !under) return;
    card.replaceChildren(h('h3', {}, nameTag(klass.name)), klass.description && h('p', { dir: 'auto' }, klass.description), examplePictures(klass));
    const box = under.getBoundingClientRect();
    const { offsetWidth: wide, offsetHeight: high } = card;
    const before = box.left - wide - 12;
    card.style.left = `${before > 8 ? before : Math.max(8, Math.min(box.left, innerWidth - wide - 8))}px`;
    card.style.top = `${Math.max(8, before > 8 ? Math.min(box.top, innerHeight - high - 8) : box.top - high - 8)}px`;
  }

  const hide = () => void (card.hidden = true);
  place.addEventListener('pointerover', (event) => event.pointerType === 'mouse' && show(event.target));
  place.addEventListener('pointerleave', hide);
  place.addEventListener('focusin', (event) => event.target instanceof Element && event.target.matches(':focus-visible') && show(event.target));
  place.addEventListener('focusout', hide);
  place.addEventListener('scroll', hide);
  addEventListener('keydown', hide);
  store.watch((state) => [state.view], hide);

  function draw() {
    const state = store.get();
    const rows = liveClasses(state).flatMap((klass, at) => {
      const details = known.get(klass.id);
      return details && hasGuide(details) ? [row(details, keyOf(at, klass)?.cap ?? '')] : [];
    });
    const none = h('p', { class: 'soft' }, 'No class has a description or examples yet. ', isOwner(state) ? h('a', { href: '#classes', onclick: () => dialog.close() }, 'Write them in Classes') : 'The owner of the campaign can write them.');
    body.replaceChildren(...(rows.length ? rows : [none]));
  }

  function open() {
    hide();
    draw();
    if (!dialog.open) dialog.showModal();
  }

  return { open };
}

/** @param {Details} klass @param {string} key */
function row(klass, key) {
  return h('section', { class: 'guide-row' }, h('h3', {}, key ? keycap(key, `key ${key}`) : '', nameTag(klass.name)), klass.description && h('p', { dir: 'auto' }, klass.description), examplePictures(klass));
}
