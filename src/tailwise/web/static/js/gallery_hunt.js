/** Hunting: classes that are short of labels, and the likeliest images of one of them that nobody has looked at. */
import { post } from './api.js';
import { counted, h, icon, keycap, nameTag, percent } from './dom.js';
import { makeGalleryTiles } from './gallery_tiles.js';
import { className, isBlind, liveClasses, shortName, store } from './state.js';

/** @typedef {import('./gallery_tiles.js').Tile} Tile */
/** @typedef {{class_id: number, name: string, labelled: number, wanted: number, short: number}} Short */
/** @typedef {{classes: Short[], class_id: number|null, labelled: number, short: number, how: string, text: boolean, message: string, tiles: Tile[]}} Hunt */

const COUNT = 48;
const CERTAIN = 0.6; // tiles below start unselected
const OFFERED = 6; // short classes that are shown as buttons
const SHORT = 24; // characters of their names

/**
 * @param {object} acts
 * @param {(images: string[], class_id: number) => Promise<boolean>} acts.accept
 * @param {(tile: Tile) => void} acts.open
 * @param {(open: boolean) => void} acts.toggled   whether the hunt takes the place of the gallery
 * @param {(trouble: unknown) => void} acts.failed
 */
export function makeHunt({ accept, open, toggled, failed }) {
  /** @type {Hunt|null} */ let hunt = null;
  /** @type {number|null} */ let hunting = null; // the class
  let [turn, words] = [0, '']; // words: what the images show, in place of what is known of the class
  const offer = h('div', { class: 'hunt-offer' });
  const title = h('h2', { class: 'hunt-title' });
  const hint = h('p', { class: 'soft small' });
  const box = /** @type {HTMLInputElement} */ (h('input', { type: 'text', class: 'find-box', placeholder: 'Hunt by text: what the images show', 'aria-label': 'Hunt by text', autocomplete: 'off', maxLength: 500, hidden: true, onkeydown: typed }));
  const taking = h('span', {});
  const take = h('button', { type: 'button', class: 'main', 'data-act': 'hunt-accept', onclick: () => void acceptAll() }, icon('check'), taking, keycap('⏎'));
  const leave = h('button', { type: 'button', class: 'plain', 'data-act': 'hunt-close', onclick: () => close() }, 'Back to the gallery');
  const tiles = makeGalleryTiles({
    load: async (offset, count) => (hunt?.tiles ?? []).slice(offset, offset + count),
    caption: (tile) => ({ text: score(tile), kind: 'guess', says: score(tile) ? `likely ${className(store.get(), hunting)}, ${score(tile)}` : 'candidate' }),
    changed: count, open, failed, label: 'Candidates',
  });
  const place = h('section', { class: 'hunt', 'aria-label': 'Hunt', hidden: true },
    h('header', { class: 'hunt-head' }, title, hint, box), tiles.element, h('footer', { class: 'hunt-foot' }, leave, take));

  /** @param {Tile} tile */
  const score = (tile) => (hunt?.how === 'model' && tile.score !== null ? percent(tile.score) : '');

  /** Which classes are short; nothing where people label blind. */
  async function look() {
    if (isBlind(store.get())) return draw(null);
    const mine = ++turn;
    try {
      const found = /** @type {Hunt} */ (await post('/api/hunt', { class_id: hunting, count: hunting === null ? 0 : COUNT, text: words }));
      if (mine === turn) draw(found);
    } catch (trouble) {
      if (mine === turn) failed(trouble);
    }
  }

  /** @param {Hunt|null} found */
  function draw(found) {
    hunt = found;
    const classes = found?.classes ?? [];
    offer.hidden = !found || hunting !== null;
    offer.replaceChildren(
      h('span', { class: 'hunt-lead' }, icon('spark'), classes.length ? 'Short of labels' : found?.message ?? ''),
      ...classes.slice(0, OFFERED).map((one) => h('button', { type: 'button', class: 'chip', 'data-hunt': one.class_id, title: `Hunt for ${one.name}: ${one.labelled} of ${one.wanted} labels`, onclick: () => start(one.class_id) },
        nameTag(one.name, shortName(liveClasses(store.get()), one.class_id, SHORT)), h('span', { class: 'short' }, `−${one.short}`))),
      classes.length > OFFERED ? more(classes.slice(OFFERED)) : '');
    if (hunting === null || !found) return;
    const name = className(store.get(), hunting);
    const none = !found.tiles.length;
    const short = found.short ? ` is ${counted(found.short, 'label')} short` : '';
    const offered = short ? ': here are the likeliest images of it that nobody has looked at' : ': the likeliest images that nobody has looked at';
    const nothing = short ? ', but there is no image to propose' : ': no image to propose';
    title.replaceChildren(h('span', { dir: 'auto' }, name), short, none ? nothing : offered);
    const why = found.message || (none ? 'no image is left: all are labelled, or being labelled now' : hintText(found.how));
    hint.textContent = `${why[0].toUpperCase()}${why.slice(1)}`;
    take.hidden = none;
    box.hidden = !found.text;
    tiles.show(found.tiles.length, found.tiles);
    tiles.clear();
    tiles.select(found.how === 'model' ? found.tiles.filter((tile) => (tile.score ?? 0) >= CERTAIN).map((tile) => tile.key) : []);
    place.dataset.ready = String(found.tiles.length);
  }

  /** @param {Short[]} classes */
  function more(classes) {
    return h('select', { class: 'pick', 'aria-label': 'Hunt for another class that is short', onchange: (/** @type {Event} */ event) => start(Number(/** @type {HTMLSelectElement} */ (event.target).value)) },
      h('option', { value: '' }, `${classes.length} more …`), ...classes.map((one) => h('option', { value: one.class_id }, `${one.name} (−${one.short})`)));
  }

  /** @param {string} how */
  function hintText(how) {
    if (how === 'model') return 'Tiles from 60\u202f% on are selected. Click or press x to take one out, then accept the rest.';
    return how === 'examples' ? 'The model does not know this class yet: these are most like its labelled images. Select those that are right.' : `These fit ${words ? `“${words}”` : 'the name of the class'} best. Select those that are right.`;
  }

  function count() {
    const taken = tiles.count();
    taking.replaceChildren(`Accept ${taken} as `, h('span', { dir: 'auto' }, hunting === null ? '' : className(store.get(), hunting)));
    take.toggleAttribute('disabled', taken === 0);
  }

  async function acceptAll() {
    const images = tiles.selected();
    if (hunting === null || !images.length) return;
    take.toggleAttribute('disabled', true);
    if (await accept(images, hunting)) await look();
    else count();
  }

  /** @param {KeyboardEvent} event */
  function typed(event) {
    if (event.key === 'Escape') box.blur();
    if (event.key !== 'Enter' || event.isComposing) return;
    words = box.value.trim();
    delete place.dataset.ready;
    void look();
  }

  /** @param {number} class_id */
  function start(class_id) {
    if (!class_id) return;
    hunting = class_id;
    words = box.value = '';
    place.hidden = false;
    offer.hidden = true;
    delete place.dataset.ready;
    toggled(true);
    void look();
  }

  function close() {
    hunting = null;
    words = '';
    place.hidden = true;
    toggled(false);
    void look();
  }

  return { offer, place, tiles, look, close, start, accept: () => void acceptAll(), active: () => hunting !== null };
}
