/** The gallery: all images, filtered and sorted; select many and label them at once; hunt for classes that are short. */
import { Away, post } from './api.js';
import { makeClassPicker } from './class_picker.js';
import { byId, counted, h, icon, keycap, percent, speak } from './dom.js';
import { makeGalleryFilter } from './gallery_filter.js';
import { makeHunt } from './gallery_hunt.js';
import { makeGalleryTiles } from './gallery_tiles.js';
import { newKey, randomHex } from './ids.js';
import { makeImageDetail, shortStateText, stateText } from './image_detail.js';
import { placeOf } from './keys.js';
import { look, note } from './link.js';
import { go } from './nav.js';
import { className, isBlind, liveClasses, shortName, store } from './state.js';
import { toast } from './toast.js';

/** @typedef {import('./gallery_tiles.js').Tile} Tile */
/** @typedef {{snapshot: string, total: number, tiles: Tile[], guesses: string, search: string, text: boolean}} Reply */

const SELECTION = 'tailwise.selection'; // keys that another view hands over
const HUNT = 'tailwise.hunt'; // the class that another view wants more images of
const SIZES = { small: 6.5, medium: 9.5, large: 15.6 }; // rem: tiles grow with the text on them
const KEEP_SIZE = 'tailwise.tiles';
const MOST = 10_000;
const SHORT = 22; // characters of a class name on a tile

/** @param {{quiet: () => Promise<void>, imageNotes: {makeNotesList: (changed: () => void) => any}}} session */
export function makeView(session) {
  const place = byId('gallery');
  /** @type {Reply|null} */ let reply = null;
  /** @type {{batch: string, annotator: string, text: string}[]} */ const done = []; // changes that can be undone
  /** @type {{images: string, class_id: number|null, batch: string}|null} */ let unsent = null; // sent again with its own name
  let turn = 0;

  const filter = makeGalleryFilter(() => void load());
  const notes = session.imageNotes.makeNotesList(() => void session.quiet().then(() => current().refresh()));
  const detail = makeImageDetail({ notes, alike: (key) => filter.likeThese([key]), label: (key) => { tiles.clear(); tiles.select([key]); picker.open(1); } });
  const picker = makeClassPicker((class_id) => void relabel(current().selected(), class_id));
  const tiles = makeGalleryTiles({ load: page, caption, changed: count, open: (tile) => void detail.open(tile), failed });
  const hunt = makeHunt({ accept: (images, class_id) => relabel(images, class_id, 'hunt'), open: (tile) => void detail.open(tile), toggled, failed });

  const total = h('span', { class: 'soft gallery-total', role: 'status' });
  const box = /** @type {HTMLInputElement} */ (h('input', { type: 'text', class: 'find-box', placeholder: 'Find by text', 'aria-label': 'Find images by text', autocomplete: 'off', maxLength: 500, onkeydown: typed }));
  const sizes = h('select', { class: 'pick', 'aria-label': 'Size of the tiles', onchange: resize },
    ...Object.keys(SIZES).map((name) => h('option', { value: name, selected: name === kept() }, `${name[0].toUpperCase()}${name.slice(1)} tiles`)));
  const order = h('div', { class: 'gallery-order' }, box, filter.order);
  const empty = h('div', { class: 'message gallery-empty', hidden: true });
  const body = h('div', { class: 'gallery-body' }, filter.element, empty, tiles.element);
  const chosen = h('span', { class: 'chosen', role: 'status' });
  const acts = [
    button('label', 'Label as …', '/', () => labelSelected()), button('open', 'Open', 'z', openSelected), button('like', 'More like this', '', alike), button('all', 'Select all', '', () => void selectAll()),
    button('none', 'Clear', 'esc', () => tiles.clear()),
  ];
  const last = h('span', { class: 'soft last-change' });
  const undoButton = h('button', { type: 'button', class: 'plain', 'data-act': 'undo', onclick: () => void undo() }, icon('undo'), 'Undo', keycap('u'));
  const lastBar = h('div', { class: 'gallery-undo', hidden: true }, last, undoButton);
  const bar = h('div', { class: 'gallery-bar', role: 'toolbar', 'aria-label': 'Selected images' }, chosen, ...acts, lastBar);
  place.append(h('header', { class: 'view-head' }, h('h1', {}, 'Gallery'), total, h('div', { class: 'gallery-tools end' }, order, sizes)), hunt.offer, hunt.place, body, bar);
  for (const one of [tiles, hunt.tiles]) one.resize(pixels(kept()));

  const current = () => (hunt.active() ? hunt.tiles : tiles);

  /** @param {string} name @param {string} words @param {string} key @param {() => void} act */
  function button(name, words, key, act) {
    return h('button', { type: 'button', class: 'plain', 'data-act': name, onclick: act }, words, key ? keycap(key) : '');
  }

  /** @param {Tile} tile */
  function caption(tile) {
    const state = store.get();
    if (tile.state !== 'unlabelled') return { text: shortStateText(tile, SHORT), kind: tile.state, says: stateText(tile) };
    if (isBlind(state) || !tile.guess || tile.confidence === null) return { text: '', kind: '', says: 'unlabelled' };
    const sure = percent(tile.confidence);
    return { text: `${shortName(liveClasses(state), tile.guess, SHORT)} ${sure}`, kind: 'guess', says: `unlabelled, guess ${className(state, tile.guess)} ${sure}` };
  }

  /** A result from its start. */
  async function load() {
    const mine = ++turn;
    place.setAttribute('aria-busy', 'true');
    try {
      const found = /** @type {Reply} */ (await post('/api/gallery', { ...filter.query(), count: 200 }));
      if (mine !== turn) return;
      reply = found;
      tiles.clear();
      tiles.show(found.total, found.tiles);
      draw();
    } catch (trouble) {
      if (mine === turn) failed(trouble);
    } finally {
      if (mine === turn) place.removeAttribute('aria-busy');
    }
  }

  /** @param {number} offset @param {number} size @returns {Promise<Tile[]>} */
  async function page(offset, size) {
    const found = /** @type {Reply} */ (await post('/api/gallery', { ...filter.query(), offset, count: size, snapshot: reply?.snapshot ?? null }));
    return found.tiles;
  }

  function draw() {
    const found = reply;
    if (!found) return;
    place.dataset.ready = String(found.total);
    const more = [found.guesses === 'making' ? 'guesses are being made' : '', found.search === 'making' ? 'the search is being prepared' : ''].filter(Boolean).join(', ');
    total.textContent = `${counted(found.total, 'image')}${more ? ` · ${more}` : ''}`;
    box.hidden = !found.text;
    empty.hidden = found.total > 0;
    tiles.element.hidden = found.total === 0;
    empty.replaceChildren(h('div', { class: 'emblem' }, icon('images')), h('h2', {}, 'No image fits'), h('p', { class: 'soft' }, 'Change or clear the filters to see others.'));
    count();
    if (found.guesses === 'making' || found.search === 'making') setTimeout(() => store.get().view === 'gallery' && void again(), 2_500);
  }

  /** What was being made may be there by now: the order stays, labels and guesses are read again. */
  async function again() {
    const mine = turn;
    const found = /** @type {Reply|null} */ (await post('/api/gallery', { ...filter.query(), count: 1, snapshot: reply?.snapshot ?? null }).catch(() => null));
    if (!found || mine !== turn || !reply) return;
    if (found.guesses !== reply.guesses) {
      tiles.refresh();
      void hunt.look();
    }
    reply = { ...reply, guesses: found.guesses, search: found.search };
    draw();
  }

  function count() {
    const number = tiles.count();
    chosen.textContent = number ? `${counted(number, 'image')} selected` : 'Click images to select them, shift-click for a range, double-click to open one.';
    for (const one of acts) one.hidden = one.dataset.act === 'open' ? number !== 1 : number === 0 && one.dataset.act !== 'all';
    const change = done.at(-1);
    lastBar.hidden = !change;
    last.textContent = change?.text ?? '';
    bar.dataset.selected = String(number);
  }

  /** @param {string[]} images @param {number|null} class_id @param {'gallery'|'hunt'} [found_by] @returns {Promise<boolean>} */
  async function relabel(images, class_id, found_by = 'gallery') {
    const { annotator } = store.get();
    if (!images.length || !annotator) return false;
    const same = unsent && unsent.images === images.join() && unsent.class_id === class_id;
    const batch = same && unsent ? unsent.batch : `g${randomHex(8)}`;
    const name = class_id === null ? 'other' : className(store.get(), class_id);
    unsent = { images: images.join(), class_id, batch };
    try {
      await session.quiet(); // answers that were given before come first
      const saved = await post('/api/gallery/relabel', { annotator, batch, images, class_id, found_by });
      unsent = null;
      const text = `${counted(saved.changed, 'image')} labelled “${name}”${saved.unchanged ? `, ${saved.unchanged.toLocaleString('en')} unchanged` : ''}`;
      if (saved.changed) done.push({ batch, annotator, text });
      speak(text);
      toast(text);
      tiles.clear();
      tiles.refresh();
      count();
      void look();
      if (!hunt.active()) void hunt.look();
      return true;
    } catch (trouble) {
      failed(trouble);
      return false;
    }
  }

  async function undo() {
    const change = done.at(-1);
    if (!change) return toast('Nothing to undo here');
    try {
      const { undone } = await post('/api/gallery/undo', { annotator: change.annotator, key: newKey(), batch: change.batch });
      done.pop();
      toast(`Undone: ${counted(undone, 'label')}`);
      tiles.refresh();
      count();
      void look();
      void hunt.look();
    } catch (trouble) {
      failed(trouble);
    }
  }

  /** @param {unknown} trouble */
  function failed(trouble) {
    note(trouble);
    const text = trouble instanceof Away ? 'The server is away: nothing was changed. Try again when it is back.' : trouble instanceof Error ? trouble.message : String(trouble);
    toast(text, { tone: 'bad', lasts: 6_000 });
  }

  function labelSelected() {
    const images = current().count();
    if (images) picker.open(images);
    else toast('Select images first');
  }

  function openSelected() {
    const [key] = tiles.selected();
    const tile = tiles.focused();
    if (key) void detail.open(tile?.key === key ? tile : { key });
  }

  function alike() {
    const keys = tiles.selected();
    const here = tiles.focused();
    if (keys.length || here) filter.likeThese(keys.length ? keys : [here?.key ?? '']);
  }

  async function selectAll() {
    try {
      const found = await post('/api/gallery/keys', { ...filter.query(), snapshot: reply?.snapshot ?? null });
      tiles.select(found.keys);
      if (found.total > MOST) toast(`The first ${MOST.toLocaleString('en')} images are selected: that is the most at once`);
    } catch (trouble) {
      failed(trouble);
    }
  }

  /** @param {KeyboardEvent} event */
  function typed(event) {
    if (event.key === 'Enter' && !event.isComposing) filter.fitting(box.value);
  }

  /** @param {Event} event */
  function resize(event) {
    const name = /** @type {HTMLSelectElement} */ (event.target).value;
    localStorage.setItem(KEEP_SIZE, name);
    for (const one of [tiles, hunt.tiles]) one.resize(pixels(name));
  }

  /** @param {boolean} open */
  function toggled(open) {
    body.hidden = bar.hidden = total.hidden = order.hidden = open;
    if (!open) tiles.refresh();
  }

  function takeSelection() {
    const text = sessionStorage.getItem(SELECTION);
    sessionStorage.removeItem(SELECTION);
    if (!text) return;
    const keys = JSON.parse(text);
    if (Array.isArray(keys)) filter.only(keys.filter((key) => typeof key === 'string').slice(0, MOST));
  }

  function open() {
    takeSelection();
    filter.draw();
    const wanted = Number(sessionStorage.getItem(HUNT));
    sessionStorage.removeItem(HUNT);
    if (wanted && !isBlind(store.get())) hunt.start(wanted);
    else void hunt.look();
    void load();
  }

  place.addEventListener('keydown', (event) => {
    const inBox = event.target instanceof HTMLInputElement;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'a' && !inBox && !hunt.active()) {
      event.preventDefault();
      void selectAll();
    }
  });
  store.watch((state) => [isBlind(state)], ({ view }) => view === 'gallery' && reply && open());
  store.watch((state) => [liveClasses(state).length, state.server?.annotators.length, state.server?.round?.id], () => filter.draw());

  return {
    open,
    keys: {
      left: () => current().move('left'), right: () => current().move('right'), up: () => current().move('up'), down: () => current().move('down'),
      space: () => current().toggle(), except: () => current().toggle(),
      enter: () => {
        if (hunt.active()) return hunt.accept();
        const tile = tiles.focused();
        if (tile) void detail.open(tile);
      },
      filter: labelSelected, undo: () => void undo(), zoom: () => {
        const tile = current().focused();
        if (tile) void detail.open(tile);
      },
      other: () => void relabel(current().selected(), null),
      digit: (/** @type {KeyboardEvent} */ event) => {
        const klass = liveClasses(store.get())[Number(placeOf(event))];
        if (klass && current().count()) void relabel(current().selected(), klass.id, hunt.active() ? 'hunt' : 'gallery');
      },
      escape: () => {
        if (hunt.active()) hunt.close();
        else if (tiles.count()) tiles.clear();
        else go('label');
      },
    },
  };
}

/** @param {string} name of a size */
function pixels(name) {
  return SIZES[/** @type {keyof typeof SIZES} */ (name)] * parseFloat(getComputedStyle(document.documentElement).fontSize);
}

/** The kept size of tiles. */
function kept() {
  const name = localStorage.getItem(KEEP_SIZE) ?? '';
  return name in SIZES ? name : 'medium';
}
