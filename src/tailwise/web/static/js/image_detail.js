/** One image in a dialog: large, with who said what, why it was chosen, and the images that are most like it. */
import { get, imageUrl } from './api.js';
import { avatar } from './cards.js';
import { counted, h, icon, nameTag, percent } from './dom.js';
import { note } from './link.js';
import { className, isBlind, shortName, store } from './state.js';

/** @typedef {import('./gallery_tiles.js').Tile} Tile */
/** @typedef {{at: number, annotator: string, kind: string, class_id: number|null, round_id: number|null, found_by: string|null, undone: boolean}} Event_ */
/** @typedef {{round_id: number, rank: number, of: number, predicted: number|null, confidence: number|null, cold_start: boolean}} Chosen */
/** @typedef {{at: number, annotator: string, kind: string, text: string}} Note */
/** @typedef {{image: Tile, events: Event_[], chosen: Chosen[], notes: Note[], copies: string[], neighbours: Tile[]}} Detail */

/** @type {Record<string, string>} */
const FOUND = { hunt: 'found by hunting', gallery: 'in the gallery', review: 'in review', duplicates: 'as a duplicate', map: 'on the map' };

/**
 * @param {object} acts
 * @param {(key: string) => void} acts.alike
 * @param {(key: string) => void} acts.label
 * @param {{element: HTMLElement, show: (key: string, notes: Note[]) => void}} acts.notes flags and comments
 */
export function makeImageDetail({ alike, label, notes }) {
  const photo = /** @type {HTMLImageElement} */ (h('img', { class: 'detail-photo', alt: 'The image' }));
  const facts = h('div', { class: 'detail-facts' });
  const near = h('div', { class: 'detail-facts' });
  const close = h('button', { type: 'button', class: 'quiet', 'aria-label': 'Close', onclick: () => dialog.close() }, icon('close'));
  const dialog = /** @type {HTMLDialogElement} */ (h('dialog', { class: 'sheet image-detail', 'aria-labelledby': 'detail-title' },
    h('header', {}, h('h2', { id: 'detail-title' }, 'Image'), close),
    h('div', { class: 'detail' }, h('div', { class: 'detail-stage' }, photo), h('div', { class: 'detail-side' }, facts, notes.element, near))));
  dialog.addEventListener('click', (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  let shown = '';

  /** @param {{key: string, seal?: string}} tile */
  async function open(tile) {
    shown = tile.key;
    photo.src = imageUrl(tile, 1280);
    photo.dataset.key = tile.key;
    facts.replaceChildren(h('p', { class: 'soft' }, 'Loading …'));
    near.replaceChildren();
    notes.element.hidden = true;
    if (!dialog.open) dialog.showModal();
    try {
      const found = /** @type {Detail} */ (await get(`/api/gallery/image/${tile.key}`));
      if (shown === tile.key) draw(found);
    } catch (trouble) {
      note(trouble);
      facts.replaceChildren(h('p', { class: 'fault' }, trouble instanceof Error ? trouble.message : String(trouble)));
    }
  }

  /** @param {Detail} found */
  function draw(found) {
    const state = store.get();
    const { image } = found;
    const guess = !isBlind(state) && image.guess && image.confidence !== null ? `The model’s guess: ${className(state, image.guess)}, ${percent(image.confidence)}` : '';
    facts.replaceChildren(
      h('p', { class: 'detail-now' }, h('strong', { dir: 'auto' }, stateText(image)), guess ? h('span', { class: 'soft' }, guess) : ''),
      h('div', { class: 'detail-acts' },
        h('button', { type: 'button', class: 'plain', 'data-act': 'detail-label', onclick: () => { dialog.close(); label(image.key); } }, 'Label as …'),
        h('button', { type: 'button', class: 'plain', 'data-act': 'detail-like', onclick: () => { dialog.close(); alike(image.key); } }, icon('spark'), 'More like this')),
      h('h3', {}, 'History'),
      found.events.length ? h('ol', { class: 'detail-events' }, ...found.events.filter((one) => one.kind !== 'undo').map(event)) : h('p', { class: 'soft' }, 'Nobody has answered it yet.'),
      h('h3', {}, 'Why it was chosen'),
      ...(found.chosen.length ? found.chosen.map((one) => h('p', {}, reason(one))) : [h('p', { class: 'soft' }, 'No round has asked for it.')]),
      ...(found.copies.length ? [h('p', { class: 'soft' }, `${counted(found.copies.length, 'other file')} with the same content.`)] : []));
    notes.show(image.key, found.notes);
    near.replaceChildren(...(found.neighbours.length ? [h('h3', {}, 'Most alike'), h('div', { class: 'detail-near' }, ...found.neighbours.map(neighbour))] : []));
    dialog.dataset.ready = image.key;
  }

  /** @param {Event_} one */
  function event(one) {
    const state = store.get();
    const settled = one.kind.startsWith('settle') ? 'decided: ' : '';
    const said = one.kind.endsWith('other') ? 'other' : one.kind === 'skip' ? 'skipped' : className(state, one.class_id);
    const where = [one.found_by ? FOUND[one.found_by] : one.round_id ? `round ${one.round_id}` : '', when(one.at), one.undone ? 'undone' : ''].filter(Boolean).join(' · ');
    return h('li', { class: one.undone ? 'undone' : '' }, avatar(one.annotator), h('span', {}, nameTag(one.annotator), ' ', h('b', { dir: 'auto' }, `${settled}${said}`)), h('span', { class: 'soft small' }, where));
  }

  /** @param {Tile} tile */
  function neighbour(tile) {
    return h('button', { type: 'button', 'aria-label': `Open a similar image: ${stateText(tile)}`, title: stateText(tile), 'data-key': tile.key, onclick: () => void open(tile) },
      h('img', { src: imageUrl(tile, 160), alt: '', loading: 'lazy' }));
  }

  return { open, element: dialog };
}

/** @param {Chosen} one */
function reason(one) {
  const place = `Round ${one.round_id}, place ${one.rank.toLocaleString('en')} of ${one.of.toLocaleString('en')}`;
  if (one.predicted && one.confidence !== null) return `${place}: the model took it for ${className(store.get(), one.predicted)} (${percent(one.confidence)}).`;
  return one.cold_start ? `${place}: a typical image of a part of the pool without labels; there was no model yet.` : `${place}.`;
}

/** What an image is, in words. @param {Tile} tile */
export function stateText(tile) {
  const words = { unlabelled: 'Unlabelled', other: 'Other', skipped: 'Skipped', conflict: 'People differ' };
  return tile.state === 'labelled' ? className(store.get(), tile.class_id) : words[/** @type {keyof typeof words} */ (tile.state)] ?? tile.state;
}

/** The same, for a place in which few characters fit. @param {Tile} tile @param {number} most */
export function shortStateText(tile, most) {
  return tile.state === 'labelled' ? shortName(store.get().server?.classes ?? [], tile.class_id, most) : stateText(tile);
}

/** @param {number} microseconds */
function when(microseconds) {
  return new Date(microseconds / 1000).toLocaleString('en', { dateStyle: 'medium', timeStyle: 'short' });
}
